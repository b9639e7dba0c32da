/* Tables of records: many lines of a plan as one call of C.

A record is what NumPy calls an inner loop with: the loop (a pointer in the public struct of a ufunc, or
one of the few below), where its operands lie, how many elements they have and how far apart these are.
`records.py` says which lines become records, and with which numbers; here they only run. The loops are
the ones that NumPy's functions call themselves, so that the bits are theirs; and short ones of sums and
products, which IEEE rounds in one way alone.

What makes it safe: a table keeps every array whose address stands in it. Addresses of what a call is
given, and of the results that it makes, are written into the records after the last call of Python, and
from there to the last record no Python runs, so that no other thread, signal handler or finalizer can
come between. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>
#include <stddef.h>
#include <string.h>

#define MOST 4 /* operands of a record, its result included */

typedef struct {
    PyUFuncGenericFunction loop;
    void *data;
    int count;             /* of operands */
    npy_intp const *sizes; /* what the loop is given: its dimensions, */
    npy_intp const *steps; /* and the steps of each operand in bytes */
    npy_intp const *outer; /* NULL, or how many axes it is called along; of each its length and steps */
    char *at[MOST];
} Record;

/* An operand whose address is new in each call. */
typedef struct {
    char **where;
    Py_ssize_t base;
    npy_intp offset;
} Patch;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Py_ssize_t length;
    Record *records;
    Py_ssize_t patch_count;
    Patch *patches;
    char **bases; /* of what a call is given, then of what it makes */
    npy_clongdouble *numbers; /* NumPy's scalars that a call is given, as memory */
    PyObject *inputs;   /* examples: arrays of the layout that is expected, and scalars */
    PyObject *outputs;  /* arrays of the layout of those that a call makes */
    PyObject *keep;     /* everything else that records point to */
} Table;

static PyObject *Mismatch;

/* Loops that no ufunc has: copies, choices and conversions that cannot round in two ways. */

#define LOOP(name, count, ...)                                                                      \
    static void name(char **args, npy_intp const *sizes, npy_intp const *steps, void *data)         \
    {                                                                                               \
        char *at[count];                                                                            \
        memcpy(at, args, sizeof at);                                                                \
        for (npy_intp i = 0; i < sizes[0]; i++) {                                                   \
            __VA_ARGS__;                                                                            \
            for (int k = 0; k < count; k++) at[k] += steps[k];                                      \
        }                                                                                           \
    }
#define OF_SIZE(size)                                                                               \
    LOOP(apart_##size, 2, memmove(at[1], at[0], size))                                              \
    LOOP(where_##size, 4, memmove(at[3], at[*(npy_bool *)at[0] ? 1 : 2], size))                     \
    static void copy_##size(char **args, npy_intp const *sizes, npy_intp const *steps, void *data)  \
    {                                                                                               \
        if (steps[0] == size && steps[1] == size) memmove(args[1], args[0], sizes[0] * size);       \
        else apart_##size(args, sizes, steps, data);                                                \
    }
OF_SIZE(1) OF_SIZE(2) OF_SIZE(4) OF_SIZE(8) OF_SIZE(16)

#define CAST(from, from_type, to, to_type)                                                          \
    LOOP(from##_##to, 2, *(to_type *)at[1] = (to_type) * (from_type *)at[0])
#define CAST_TO_COMPLEX(from, from_type, to, part)                                                  \
    LOOP(from##_##to, 2, ((part *)at[1])[0] = *(from_type *)at[0]; ((part *)at[1])[1] = 0)
#define CASTS(from, from_type)                                                                      \
    CAST(from, from_type, float32, npy_float32) CAST(from, from_type, float64, npy_float64)
CASTS(int8, npy_int8) CASTS(int16, npy_int16) CASTS(int32, npy_int32) CASTS(int64, npy_int64)
CASTS(uint8, npy_uint8) CASTS(uint16, npy_uint16) CASTS(uint32, npy_uint32) CASTS(uint64, npy_uint64)
#define OF_BOOL(to, type) LOOP(bool_##to, 2, *(type *)at[1] = *(npy_bool *)at[0] != 0)
OF_BOOL(float32, npy_float32) OF_BOOL(float64, npy_float64) OF_BOOL(int32, npy_int32) OF_BOOL(int64, npy_int64)
CAST(float32, npy_float32, float64, npy_float64) CAST(float64, npy_float64, float32, npy_float32)
CAST_TO_COMPLEX(float32, npy_float32, complex64, npy_float32)
CAST_TO_COMPLEX(float64, npy_float64, complex128, npy_float64)
CAST_TO_COMPLEX(float32, npy_float32, complex128, npy_float64)

/* Sums and products of few numbers, one beside the other or the same, in one row or in many: NumPy's loops
take longer to find that out than to compute. */
#if defined(__GNUC__) && !defined(__clang__)
#define APART _Pragma("GCC ivdep")
#elif defined(__clang__)
#define APART _Pragma("clang loop vectorize(assume_safety)")
#else
#define APART
#endif
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define BY_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define BY_PROCESSOR
#endif
#define ROW(type, sign)                                                                             \
    if (steps[0] == 0) {                                                                            \
        type x = a[0];                                                                              \
        APART for (npy_intp i = 0; i < n; i++) c[i] = x sign b[i];                                  \
    }                                                                                               \
    else if (steps[1] == 0) {                                                                       \
        type x = b[0];                                                                              \
        APART for (npy_intp i = 0; i < n; i++) c[i] = a[i] sign x;                                  \
    }                                                                                               \
    else {                                                                                          \
        APART for (npy_intp i = 0; i < n; i++) c[i] = a[i] sign b[i];                               \
    }
#define SHORT(name, type, sign)                                                                     \
    BY_PROCESSOR static void name(char **args, npy_intp const *sizes, npy_intp const *steps, void *data)         \
    {                                                                                               \
        type const *a = (type *)args[0], *b = (type *)args[1];                                      \
        type *c = (type *)args[2];                                                                  \
        npy_intp n = sizes[0];                                                                      \
        ROW(type, sign)                                                                             \
    }                                                                                               \
    BY_PROCESSOR static void rows_##name(char **args, npy_intp const *sizes, npy_intp const *steps, void *data)  \
    {                                                                                               \
        npy_intp n = sizes[0];                                                                      \
        for (npy_intp row = 0; row < sizes[1]; row++) {                                             \
            type const *a = (type *)(args[0] + row * steps[3]), *b = (type *)(args[1] + row * steps[4]);         \
            type *c = (type *)(args[2] + row * steps[5]);                                           \
            ROW(type, sign)                                                                         \
        }                                                                                           \
    }
#define SHORTS(name, type)                                                                          \
    SHORT(add_##name, type, +) SHORT(subtract_##name, type, -) SHORT(multiply_##name, type, *)        \
    SHORT(divide_##name, type, /)
SHORTS(float32, npy_float32) SHORTS(float64, npy_float64)

/* Whether there is a NaN: it stays noted. */
#define IS_NAN(x) ((x) != (x))
#define LOOK(name, type)                                                                            \
    LOOP(nan_##name, 2, *(npy_bool *)at[1] |= IS_NAN(*(type *)at[0]))                               \
    LOOP(nan_complex_##name, 2,                                                                     \
         *(npy_bool *)at[1] |= IS_NAN(((type *)at[0])[0]) || IS_NAN(((type *)at[0])[1]))
LOOK(float32, npy_float32) LOOK(float64, npy_float64)

#define NAMED(name) {#name, name}
#define NAMED_CASTS(from) NAMED(from##_float32), NAMED(from##_float64)
static struct {
    const char *name;
    PyUFuncGenericFunction loop;
} const OWN[] = {
    NAMED(copy_1), NAMED(copy_2), NAMED(copy_4), NAMED(copy_8), NAMED(copy_16),
    NAMED(where_1), NAMED(where_2), NAMED(where_4), NAMED(where_8), NAMED(where_16),
    NAMED_CASTS(bool), NAMED(bool_int32), NAMED(bool_int64), NAMED_CASTS(int8), NAMED_CASTS(int16), NAMED_CASTS(int32), NAMED_CASTS(int64),
    NAMED_CASTS(uint8), NAMED_CASTS(uint16), NAMED_CASTS(uint32), NAMED_CASTS(uint64),
    NAMED(float32_float64), NAMED(float64_float32), NAMED(float32_complex64),
    NAMED(float64_complex128), NAMED(float32_complex128),
    NAMED(add_float32), NAMED(subtract_float32), NAMED(multiply_float32), NAMED(divide_float32),
    NAMED(add_float64), NAMED(subtract_float64), NAMED(multiply_float64), NAMED(divide_float64),
    NAMED(rows_add_float32), NAMED(rows_subtract_float32), NAMED(rows_multiply_float32), NAMED(rows_divide_float32),
    NAMED(rows_add_float64), NAMED(rows_subtract_float64), NAMED(rows_multiply_float64), NAMED(rows_divide_float64),
    NAMED(nan_float32), NAMED(nan_float64),
    {"nan_complex64", nan_complex_float32}, {"nan_complex128", nan_complex_float64},
};

/* Running */

static void run(const Record *record, npy_intp const *outer, npy_intp axes, char *const *from)
{
    for (npy_intp i = 0; i < outer[0]; i++) {
        char *at[MOST]; /* loops may change what they are given */
        for (int k = 0; k < record->count; k++) at[k] = from[k] + i * outer[1 + k];
        if (axes > 1) run(record, outer + 1 + record->count, axes - 1, at);
        else record->loop(at, record->sizes, record->steps, record->data);
    }
}

static void place_all(Table *self)
{
    for (Patch *p = self->patches; p < self->patches + self->patch_count; p++)
        *p->where = self->bases[p->base] + p->offset;
}

static void run_some(Table *self, Py_ssize_t start, Py_ssize_t stop)
{
    for (Record *r = self->records + start; r < self->records + stop; r++) {
        if (r->outer != NULL) {
            run(r, r->outer + 1, r->outer[0], r->at);
        }
        else {
            char *at[MOST];
            memcpy(at, r->at, sizeof at);
            r->loop(at, r->sizes, r->steps, r->data);
        }
    }
}

/* Return whether an array, without its first axes, lies as another. */
static int lies_alike(PyArrayObject *a, int first, PyArrayObject *b)
{
    if (PyArray_NDIM(a) != PyArray_NDIM(b) + first || PyArray_TYPE(a) != PyArray_TYPE(b)) return 0;
    if (!PyArray_ISALIGNED(a) || !PyArray_ISNOTSWAPPED(a)) return 0;
    for (int axis = 0; axis < PyArray_NDIM(b); axis++) {
        if (PyArray_DIM(a, axis + first) != PyArray_DIM(b, axis)) return 0;
        if (PyArray_DIM(b, axis) > 1 &&
            PyArray_STRIDE(a, axis + first) != PyArray_STRIDE(b, axis))
            return 0;
    }
    return 1;
}

/* Return whether what a call is given is what the records are for; note where it lies. */
static int place(Table *self, Py_ssize_t number, PyObject *given)
{
    PyObject *example = PyTuple_GET_ITEM(self->inputs, number);
    if (!PyArray_Check(example)) {
        if (Py_TYPE(given) != Py_TYPE(example)) return 0;
        PyArray_ScalarAsCtype(given, self->numbers + number);
        self->bases[number] = (char *)(self->numbers + number);
        return 1;
    }
    if (!PyArray_CheckExact(given)) return 0;
    if (!lies_alike((PyArrayObject *)given, 0, (PyArrayObject *)example)) return 0;
    self->bases[number] = PyArray_BYTES((PyArrayObject *)given);
    return 1;
}

static PyObject *new_like(PyObject *example)
{
    return PyArray_NewLikeArray((PyArrayObject *)example, NPY_KEEPORDER, NULL, 0);
}

static PyObject *call(PyObject *object, PyObject *const *given, size_t flags, PyObject *names)
{
    Table *self = (Table *)object;
    Py_ssize_t in = PyTuple_GET_SIZE(self->inputs), out = PyTuple_GET_SIZE(self->outputs);
    if (PyVectorcall_NARGS(flags) != in || (names != NULL && PyTuple_GET_SIZE(names))) {
        PyErr_Format(PyExc_TypeError, "a table takes %zd arrays", in);
        return NULL;
    }
    PyObject *made = NULL; /* what it makes: nothing, an array, or a tuple */
    if (out == 1) {
        made = new_like(PyTuple_GET_ITEM(self->outputs, 0));
        if (made == NULL) return NULL;
    }
    else if (out > 1) {
        made = PyTuple_New(out);
        for (Py_ssize_t i = 0; made != NULL && i < out; i++) {
            PyObject *array = new_like(PyTuple_GET_ITEM(self->outputs, i));
            if (array == NULL) Py_CLEAR(made);
            else PyTuple_SET_ITEM(made, i, array);
        }
        if (made == NULL) return NULL;
    }
    /* From here on no Python runs. */
    for (Py_ssize_t i = 0; i < in; i++) {
        if (!place(self, i, given[i])) {
            Py_XDECREF(made);
            PyErr_Format(Mismatch, "array %zd lies in memory as none did when the plan was made", i);
            return NULL;
        }
    }
    for (Py_ssize_t i = 0; i < out; i++) {
        PyObject *array = out == 1 ? made : PyTuple_GET_ITEM(made, i);
        self->bases[in + i] = PyArray_BYTES((PyArrayObject *)array);
    }
    place_all(self);
    run_some(self, 0, self->length);
    if (PyErr_Occurred()) { /* which no loop that is used here does */
        Py_XDECREF(made);
        return NULL;
    }
    if (made == NULL) Py_RETURN_NONE;
    return made;
}

/* Run all records so many times, on one row of each array after another, and write into arrays that
are there; return how often. Of each input and output it takes a tuple: an array, the row of the first
iteration, and how many rows further the next one goes; with 0 each takes the whole array. Where a
bool is set after the first so many records, that iteration ends there, and is the last. */
static PyObject *iterations(PyObject *object, PyObject *args)
{
    Table *self = (Table *)object;
    Py_ssize_t count, in = PyTuple_GET_SIZE(self->inputs), out = PyTuple_GET_SIZE(self->outputs);
    Py_ssize_t done = 0, looked;
    PyObject *given, *found;
    if (!PyArg_ParseTuple(args, "nO!nO!", &count, &PyTuple_Type, &given, &looked, &PyArray_Type, &found))
        return NULL;
    if (looked < 0 || looked > self->length || PyArray_TYPE((PyArrayObject *)found) != NPY_BOOL) {
        PyErr_SetString(PyExc_TypeError, "iterations look at a bool after some of the records");
        return NULL;
    }
    npy_bool *stop = (npy_bool *)PyArray_DATA((PyArrayObject *)found);
    if (PyTuple_GET_SIZE(given) != in + out) {
        PyErr_Format(PyExc_TypeError, "iterations of %zd arrays", in + out);
        return NULL;
    }
    npy_intp *steps = PyMem_Calloc((size_t)(in + out) + 1, sizeof(npy_intp));
    char **starts = PyMem_Calloc((size_t)(in + out) + 1, sizeof(char *));
    if (steps == NULL || starts == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    for (Py_ssize_t i = 0; i < in + out; i++) {
        PyObject *example =
            i < in ? PyTuple_GET_ITEM(self->inputs, i) : PyTuple_GET_ITEM(self->outputs, i - in);
        PyObject *part = PyTuple_GET_ITEM(given, i), *array;
        Py_ssize_t first, by;
        if (!PyTuple_Check(part) ||
            !PyArg_ParseTuple(part, "O!nn", &PyArray_Type, &array, &first, &by)) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "iterations take tuples");
            goto end;
        }
        PyArrayObject *a = (PyArrayObject *)array;
        if (!PyArray_Check(example) || !lies_alike(a, by != 0, (PyArrayObject *)example) ||
            (i >= in && !PyArray_ISWRITEABLE(a))) {
            PyErr_Format(Mismatch, "array %zd lies in memory as none did when the plan was made", i);
            goto end;
        }
        starts[i] = PyArray_BYTES(a);
        if (by != 0) {
            Py_ssize_t last = first + (count - 1) * by, rows = PyArray_DIM(a, 0);
            if (count > 0 && (first < 0 || first >= rows || last < 0 || last >= rows)) {
                PyErr_Format(PyExc_IndexError, "array %zd has no %zd rows to go along", i, count);
                goto end;
            }
            starts[i] += first * PyArray_STRIDE(a, 0);
            steps[i] = by * PyArray_STRIDE(a, 0);
        }
    }
    /* From here on no Python runs. */
    memcpy(self->bases, starts, (size_t)(in + out) * sizeof(char *));
    for (*stop = 0; done < count; done++) {
        place_all(self);
        run_some(self, 0, looked);
        if (*stop) break;
        run_some(self, looked, self->length);
        for (Py_ssize_t i = 0; i < in + out; i++) self->bases[i] += steps[i];
    }
end:
    PyMem_Free(steps);
    PyMem_Free(starts);
    if (PyErr_Occurred()) return NULL;
    return PyLong_FromSsize_t(done);
}

/* Making */

static int find_loop(PyObject *loop, Py_ssize_t index, Record *record)
{
    if (PyUnicode_Check(loop)) {
        for (size_t i = 0; i < sizeof OWN / sizeof OWN[0]; i++) {
            if (PyUnicode_CompareWithASCIIString(loop, OWN[i].name) == 0) {
                record->loop = OWN[i].loop;
                return 0;
            }
        }
        PyErr_Format(PyExc_LookupError, "no loop is called %U", loop);
        return -1;
    }
    if (!PyObject_TypeCheck(loop, &PyUFunc_Type)) {
        PyErr_SetString(PyExc_TypeError, "a loop is a ufunc's, or the name of one");
        return -1;
    }
    PyUFuncObject *ufunc = (PyUFuncObject *)loop;
    if (index < 0 || index >= ufunc->ntypes) {
        PyErr_Format(PyExc_LookupError, "%s has no loop %zd", ufunc->name, index);
        return -1;
    }
    record->loop = ufunc->functions[index];
    record->data = ufunc->data == NULL ? NULL : ((void **)ufunc->data)[index];
    return 0;
}

static int fill(Table *self, PyObject *records, PyArrayObject *numbers, PyObject *fixed)
{
    npy_intp const *ints = (npy_intp const *)PyArray_DATA(numbers);
    Py_ssize_t fixed_count = PyTuple_GET_SIZE(fixed);
    Py_ssize_t dynamic = PyTuple_GET_SIZE(self->inputs) + PyTuple_GET_SIZE(self->outputs);
    for (Py_ssize_t i = 0; i < self->length; i++) {
        Record *record = self->records + i;
        PyObject *loop, *places;
        Py_ssize_t index, sizes, steps, outer, most = PyArray_SIZE(numbers);
        if (!PyTuple_Check(PyList_GET_ITEM(records, i))) {
            PyErr_SetString(PyExc_TypeError, "a record is a tuple");
            return -1;
        }
        if (!PyArg_ParseTuple(PyList_GET_ITEM(records, i), "OnnnnO!", &loop, &index, &sizes, &steps,
                              &outer, &PyTuple_Type, &places))
            return -1;
        if (find_loop(loop, index, record) < 0) return -1;
        if (sizes < 0 || sizes >= most || steps < 0 || steps >= most || outer >= most) {
            PyErr_Format(PyExc_LookupError, "there are but %zd numbers", most);
            return -1;
        }
        record->count = (int)PyTuple_GET_SIZE(places);
        if (record->count > MOST) {
            PyErr_Format(PyExc_ValueError, "a record has at most %d operands", MOST);
            return -1;
        }
        record->sizes = ints + sizes;
        record->steps = ints + steps;
        record->outer = outer < 0 ? NULL : ints + outer;
        for (int k = 0; k < record->count; k++) {
            Py_ssize_t base, offset;
            if (!PyArg_ParseTuple(PyTuple_GET_ITEM(places, k), "nn", &base, &offset)) return -1;
            if (base < 0 || base >= fixed_count + dynamic) {
                PyErr_Format(PyExc_LookupError, "no array has the number %zd", base);
                return -1;
            }
            if (base < fixed_count) {
                PyArrayObject *array = (PyArrayObject *)PyTuple_GET_ITEM(fixed, base);
                record->at[k] = PyArray_BYTES(array) + offset;
            }
            else {
                self->patches[self->patch_count++] =
                    (Patch){&record->at[k], base - fixed_count, offset};
            }
        }
    }
    return 0;
}

static int all_arrays(PyObject *tuple, int scalars_too)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        PyObject *x = PyTuple_GET_ITEM(tuple, i);
        int number = scalars_too && (PyArray_IsScalar(x, Number) || PyArray_IsScalar(x, Bool));
        if (!PyArray_CheckExact(x) && !number) {
            PyErr_SetString(PyExc_TypeError, "a table is made for arrays");
            return -1;
        }
    }
    return 0;
}

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *options)
{
    PyObject *records, *numbers, *inputs, *outputs, *fixed;
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!:Table", &PyList_Type, &records, &PyArray_Type, &numbers,
                          &PyTuple_Type, &fixed, &PyTuple_Type, &inputs, &PyTuple_Type, &outputs))
        return NULL;
    if (all_arrays(inputs, 1) < 0 || all_arrays(outputs, 0) < 0 || all_arrays(fixed, 0) < 0)
        return NULL;
    if (PyArray_TYPE((PyArrayObject *)numbers) != NPY_INTP ||
        !PyArray_IS_C_CONTIGUOUS((PyArrayObject *)numbers)) {
        PyErr_SetString(PyExc_TypeError, "a table's numbers are of np.intp, one beside the other");
        return NULL;
    }
    Table *self = (Table *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->vectorcall = call;
    self->length = PyList_GET_SIZE(records);
    self->inputs = Py_NewRef(inputs);
    self->outputs = Py_NewRef(outputs);
    Py_ssize_t in = PyTuple_GET_SIZE(inputs), out = PyTuple_GET_SIZE(outputs);
    self->records = PyMem_Calloc((size_t)self->length + 1, sizeof(Record));
    self->patches = PyMem_Calloc((size_t)self->length * MOST + 1, sizeof(Patch));
    self->bases = PyMem_Calloc((size_t)(in + out) + 1, sizeof(char *));
    self->numbers = PyMem_Calloc((size_t)in + 1, sizeof(npy_clongdouble));
    /* The records too: they hold the ufuncs. */
    self->keep = PyTuple_Pack(3, records, numbers, fixed);
    if (self->records == NULL || self->patches == NULL || self->bases == NULL ||
        self->numbers == NULL || self->keep == NULL) {
        Py_DECREF(self);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    if (fill(self, records, (PyArrayObject *)numbers, fixed) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void forget(PyObject *object)
{
    Table *self = (Table *)object;
    PyMem_Free(self->records);
    PyMem_Free(self->patches);
    PyMem_Free(self->bases);
    PyMem_Free(self->numbers);
    Py_XDECREF(self->inputs);
    Py_XDECREF(self->outputs);
    Py_XDECREF(self->keep);
    Py_TYPE(object)->tp_free(object);
}

static PyMethodDef methods[] = {
    {"iterations", iterations, METH_VARARGS, "iterations(count, arrays): run the records so often."},
    {NULL, NULL, 0, NULL},
};

static Py_ssize_t length(PyObject *self) { return ((Table *)self)->length; }
static PySequenceMethods sequence = {.sq_length = length};

static PyTypeObject TableType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tapegraph.fallback.plan._records.Table",
    .tp_doc = "Table(records, numbers, fixed, inputs, outputs): records that one call runs.",
    .tp_basicsize = sizeof(Table),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Table, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_as_sequence = &sequence,
    .tp_methods = methods,
    .tp_new = make,
    .tp_dealloc = forget,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_records",
    .m_doc = "Tables of records, which run the inner loops of NumPy's ufuncs.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__records(void)
{
    import_array();
    import_umath();
    if (PyType_Ready(&TableType) < 0) return NULL;
    PyObject *made = PyModule_Create(&module);
    if (made == NULL) return NULL;
    Mismatch = PyErr_NewException("tapegraph.fallback.plan._records.Mismatch", NULL, NULL);
    if (Mismatch == NULL || PyModule_AddObjectRef(made, "Mismatch", Mismatch) < 0 ||
        PyModule_AddObjectRef(made, "Table", (PyObject *)&TableType) < 0 ||
        PyModule_AddIntConstant(made, "source", SOURCE) < 0) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}

"""placeholder"""
class Dual: pass
def grad(f, argnum=0): raise NotImplementedError
def jvp(f, p, t): raise NotImplementedError

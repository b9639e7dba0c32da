"""Operations, the tape that records them, and programs, which are recordings in columns."""

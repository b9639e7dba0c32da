"""Operations, the tape that records them, and the programs that are read from it."""

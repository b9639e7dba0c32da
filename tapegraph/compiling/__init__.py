"""`tg.compile`: whole steps recorded once, and run again as one program."""

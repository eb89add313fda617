# Fills what `open_it` opened, a descriptor or a mapping, until no more can be written.
held, wrote, piece = None, 0, bytes(1 << 20)
try:
    fd = open_it()
    while wrote < 1 << 29:
        if fd is None:
            held[wrote : wrote + len(piece)] = piece
            wrote += len(piece)
        else:
            wrote += os.write(fd, piece)
    found["outcome"] = "ok"
except OSError as error:
    found["outcome"] = word(error.errno)
found["wrote"] = wrote

held, outcome = [], "ok"
while len(held) < 8000:
    try:
        held.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))
    except OSError as error:
        outcome = word(error.errno)
        break
found.update(opened=len(held), outcome=outcome)

# Opens the program of every process of another user, for reading and from there for writing, until a file tells it to stop.
got, rounds, deadline = set(), 0, time.monotonic() + 60
while not os.path.exists("/workspace/enough") and time.monotonic() < deadline:
    rounds += 1
    for pid, line in trusted().items():
        for path in (f"/proc/{pid}/exe",):
            for flags in (os.O_RDONLY, os.O_WRONLY, os.O_PATH):
                try:
                    fd = os.open(path, flags)
                except OSError:
                    continue
                got.add(f"{line} {flags}")
                for again in (os.O_WRONLY, os.O_RDWR | os.O_TRUNC):
                    if attempt(os.open, f"/proc/self/fd/{fd}", again) == "ok":
                        got.add(f"{line} {again} from {flags}")
                os.close(fd)
found.update(rounds=rounds, opened=sorted(got))

# The other kernel hangs up on a whole group when one of it stops and another ends.
signal.signal(signal.SIGHUP, signal.SIG_IGN)


# Six that want to stay: each would write into the workspace five seconds later.
def stay(ways):
    if os.fork():
        return
    for way in ways:
        if way == "session":
            os.setsid()
        elif way == "fork" and os.fork():
            os._exit(0)
        elif way == "deaf":
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
                signal.signal(number, signal.SIG_IGN)
        elif way == "closed":
            os.closerange(0, 256)
        elif way == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif way == "loud":
            for _ in range(600):
                os.write(1, b".")
                time.sleep(0.1)
    time.sleep(5)
    open("/workspace/late", "w").close()
    os._exit(0)


def say():
    os.write(1, b"{}\n")


for ways in (["fork", "session", "fork", "closed", "deaf"], ["session", "deaf"], ["fork", "loud"], ["stopped"], ["deaf", "fork"],
             ["session", "fork", "session", "fork"]):
    stay(ways)
open("/workspace/started", "w").close()

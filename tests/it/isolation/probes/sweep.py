# Each number in a process of its own, which a timer ends when the call waits for something.
import mmap

answers = {}


def try_call(number):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            for stream in (0, 1, 2):
                os.dup2(write, stream)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            os.write(write, call(number, 0, 0, 0, 0, 0, 0).encode() + b"\n")
        finally:
            os._exit(0)
    os.close(write)
    _, ended = os.waitpid(child, 0)
    # What a stray child of a fork says too comes after.
    got = b""
    while b"\n" not in got:
        piece = os.read(read, 200)
        if not piece:
            break
        got += piece
    os.close(read)
    return got.split(b"\n")[0].decode() or f"died {ended}"


for number in range(601):
    answers[number] = try_call(number)


def machine_code(code):
    def run():
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(code)
        function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
        got = function()
        return "ok" if got >= 0 else word(-got)
    return apart(run)


found["answers"] = answers
found["doors"] = {
    # mov eax, 20 (getpid of the 32-bit table); int 0x80; ret
    "int 0x80 getpid": machine_code(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"),
    # socketcall(socket)
    "int 0x80 socketcall": machine_code(b"\xb8\x66\x00\x00\x00\xbb\x01\x00\x00\x00\xcd\x80\xc3"),
    "x32 getpid": apart(call, 0x40000000 + 39),
    "x32 unshare": apart(call, 0x40000000 + 272, 0x10000000),
}

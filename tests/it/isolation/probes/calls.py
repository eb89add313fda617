word_at = ctypes.byref((ctypes.c_uint64 * 32)())
# One byte of its own memory, from or to one of the other's.
vector = ctypes.byref((ctypes.c_uint64 * 2)(ctypes.addressof(ctypes.create_string_buffer(8)), 1))
found["calls"] = {
    "io_uring_setup": call(425, 8, word_at),
    "io_uring_enter": call(426, 0, 1, 0, 0, None, 0),
    "io_uring_register": call(427, 0, 0, None, 0),
    "bpf map": call(321, 0, word_at, 128),
    "bpf prog": call(321, 5, word_at, 128),
    "userfaultfd": call(323, 0),
    "perf_event_open": call(298, word_at, 0, -1, -1, 0),
    "add_key": call(248, b"user", b"x", b"y", 1, -3),
    "request_key": call(249, b"user", b"x", None, -3),
    "keyctl": call(250, 0, -3, 0),
    "name_to_handle_at": call(303, -100, b"/", word_at, word_at, 0),
    "open_by_handle_at": call(304, 3, word_at, 0),
    "kexec_load": call(246, 0, 0, None, 0),
    "kexec_file_load": call(320, -1, -1, 0, None, 0),
    "init_module": call(175, None, 0, b""),
    "finit_module": call(313, -1, b"", 0),
    "delete_module": call(176, b"x", 0),
    "ptrace init": call(101, 16, 1, 0, 0),
    "process_vm_readv init": call(310, 1, vector, 1, vector, 1, 0),
    "process_vm_writev init": call(311, 1, vector, 1, vector, 1, 0),
    "personality(ADDR_NO_RANDOMIZE)": call(135, 0x0040000),
    "personality(READ_IMPLIES_EXEC)": call(135, 0x0400000),
    "modify_ldt": call(154, 0, word_at, 8),
    "iopl": call(172, 3),
    "ioperm": call(173, 0, 8, 1),
    "mount_setattr": call(442, -100, b"/", 0, word_at, 32),
    "fsopen": call(430, b"tmpfs", 0),
    "pidfd_getfd": call(438, 3, 0, 0),
    "kcmp": call(312, 1, os.getpid(), 0, 0, 0),
    "lookup_dcookie": call(212, 0, word_at, 8),
    "quotactl": call(179, 0, None, 0, None),
    "swapon": call(167, b"/tmp/x", 0),
    "reboot": call(169, 0, 0, 0, None),
    "settimeofday": call(164, word_at, None),
    "clock_settime": call(227, 0, word_at),
    "adjtimex": call(159, ctypes.byref((ctypes.c_uint64 * 32)(1))),
    "sethostname": call(170, b"x", 1),
    "chroot": call(161, b"/tmp"),
    "acct": call(163, b"/tmp/x"),
    "syslog": call(103, 3, word_at, 8),
    "fanotify_init": call(300, 0, 0),
    "move_pages": call(279, 1, 0, None, None, None, 0),
    "migrate_pages": call(256, 1, 0, None, None),
    "vhangup": call(153),
}

found["families"] = []
for family in range(48):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_RAW):
        if call(41, family, kind, 0) == "ok" and family not in found["families"]:
            found["families"].append(family)
found["raw"] = {
    "inet icmp": call(41, 2, 3, 1), "inet raw": call(41, 2, 3, 255), "inet6 raw": call(41, 10, 3, 58), "packet": call(41, 17, 3, 768),
    "sctp": call(41, 2, 1, 132), "alg": call(41, 38, 5, 0), "vsock": call(41, 40, 1, 0),
}

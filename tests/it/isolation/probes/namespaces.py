NEW = {"USER": 0x10000000, "NS": 0x20000, "NET": 0x40000000, "PID": 0x20000000, "IPC": 0x08000000, "UTS": 0x04000000,
       "CGROUP": 0x02000000, "USER|NS|NET": 0x50020000}
UNSHARE, CLONE, CLONE3, SETNS, MOUNT, UMOUNT2, PIVOT_ROOT, OPEN_TREE, MOVE_MOUNT, FSOPEN, MOUNT_SETATTR = (
    272, 56, 435, 308, 165, 166, 155, 428, 429, 430, 442)

for group in ("unshare", "clone", "clone3", "setns", "mount"):
    found[group] = {}
for name, flag in NEW.items():
    found["unshare"][name] = apart(call, UNSHARE, flag)
    found["clone"][name] = apart(call, CLONE, flag | signal.SIGCHLD, 0, 0, 0, 0)
    arguments = (ctypes.c_uint64 * 11)(flag, 0, 0, 0, signal.SIGCHLD)
    found["clone3"][name] = apart(call, CLONE3, ctypes.byref(arguments), 88)


def enter(path):
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError as error:
        return word(error.errno)
    return call(SETNS, fd, 0)


for pid in ("self", "1"):
    for name in ("user", "mnt", "net", "pid", "ipc", "uts", "cgroup"):
        path = f"/proc/{pid}/ns/{name}"
        if pid == "1" or os.path.exists(path):
            found["setns"][path] = apart(enter, path)

mounts = found["mount"]
mounts["tmpfs"] = apart(call, MOUNT, b"x", b"/tmp", b"tmpfs", 0, None)
mounts["bind"] = apart(call, MOUNT, b"/", b"/tmp", None, 4096, None)
mounts["remount"] = apart(call, MOUNT, None, b"/", None, 32, None)
mounts["proc"] = apart(call, MOUNT, b"p", b"/tmp", b"proc", 0, None)
mounts["over the workspace"] = apart(call, MOUNT, b"x", b"/workspace", b"tmpfs", 0, None)
mounts["umount"] = apart(call, UMOUNT2, b"/proc/kcore", 2)
mounts["pivot_root"] = apart(call, PIVOT_ROOT, b"/", b"/tmp")
mounts["fsopen"] = apart(call, FSOPEN, b"tmpfs", 0)
mounts["open_tree"] = apart(call, OPEN_TREE, -100, b"/", 1)
mounts["mount_setattr"] = apart(call, MOUNT_SETATTR, -100, b"/", 0, ctypes.byref((ctypes.c_uint64 * 4)()), 32)


def inside():
    """What is to be had in a namespace of its own, if there is one."""
    uid = os.getuid()
    if call(UNSHARE, NEW["USER|NS|NET"]) != "ok":
        return "{}"
    attempt(written, "/proc/self/setgroups", b"deny")
    attempt(written, "/proc/self/uid_map", f"0 {uid} 1".encode())
    return json.dumps({
        "interfaces": ",".join(sorted(name for _, name in socket.if_nameindex())),
        "root": attempt(lambda: os.close(os.open("/usr/planted", os.O_WRONLY | os.O_CREAT))),
        "other": attempt(opened, "/proc/1/mem"),
        "signal": attempt(os.kill, 1, 0),
    })


found["inside"] = json.loads(apart(inside))

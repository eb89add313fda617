found["opened"] = {}
for path in ("/dev/mem", "/dev/port", "/dev/kmsg", "/dev/fuse", "/dev/net/tun", "/dev/kvm", "/dev/vhost-net", "/dev/vhost-vsock", "/dev/vsock",
             "/dev/sda", "/dev/vda", "/dev/nvme0n1", "/dev/loop0", "/dev/loop-control", "/dev/mapper/control", "/dev/console", "/dev/tty0",
             "/dev/tty1", "/dev/ttyS0", "/dev/userfaultfd", "/dev/dri/card0", "/dev/snd/timer", "/dev/input/event0", "/dev/rtc0",
             "/dev/watchdog", "/dev/cpu/0/msr", "/dev/hpet", "/dev/uinput", "/dev/btrfs-control", "/dev/sgx_enclave", "/dev/tty"):
    found["opened"][path] = attempt(opened, path, os.O_RDWR)

found["made"] = {}
for place in ("/workspace", "/tmp", "/dev/shm", "/dev"):
    for kind, major, minor in ((stat.S_IFCHR, 1, 1), (stat.S_IFCHR, 1, 11), (stat.S_IFBLK, 8, 0), (stat.S_IFCHR, 10, 229)):
        got = attempt(os.mknod, f"{place}/node", kind | 0o666, os.makedev(major, minor))
        if got == "ok":
            # A name is nothing; what counts is whether a device is behind it.
            got = "made, " + attempt(opened, f"{place}/node", os.O_RDWR)
            os.unlink(f"{place}/node")
        found["made"][f"{place} {major}:{minor}"] = got
found["dev"] = sorted(os.listdir("/dev"))

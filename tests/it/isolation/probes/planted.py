replaced = found["replaced"] = {}
for path in ("/dev/null", "/dev/console", "/dev/ptmx", "/dev/pts/0", "/dev/tty", "/dev/stdout"):
    replaced["unlink " + path] = attempt(os.unlink, path)
    replaced["rename " + path] = attempt(os.rename, path, path + ".old")
replaced["link in /dev"] = attempt(os.symlink, "/proc/sys/kernel/core_pattern", "/dev/planted")
replaced["link in /dev/pts"] = attempt(os.symlink, "/proc/sysrq-trigger", "/dev/pts/9")
for path in ("/etc/ld.so.preload", "/etc/ld.so.cache", "/etc/nsswitch.conf", "/etc/passwd", "/lib/libnss_planted.so.2",
             "/usr/lib/libnss_planted.so.2", "/leasehold/guest", "/leasehold/planted.so", "/usr/local/bin/guest"):
    replaced[path] = attempt(lambda: os.close(os.open(path, os.O_WRONLY | os.O_CREAT)))
for name in ("libnss_files.so.2", "ld.so.preload", "libc.so.6", "guest", "sh", "cat"):
    with open(f"/workspace/{name}", "w") as file:
        file.write("#!/proc/self/exe\n")
    os.chmod(f"/workspace/{name}", 0o755)

own = found["own program"] = {}
for path in ("/proc/self/exe", "/usr/bin/python3", "/bin/sh"):
    own[path] = attempt(os.open, path, os.O_WRONLY)

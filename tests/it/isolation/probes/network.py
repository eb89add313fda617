found["interfaces"] = sorted(name for _, name in socket.if_nameindex())
with open("/proc/net/route") as file:
    found["routes"] = [line.split()[0] for line in file.readlines()[1:] if line.strip()]


def reach(family, kind, address):
    with socket.socket(family, kind) as one:
        one.settimeout(2)
        one.connect((address, 9))


# Connecting a datagram socket sends nothing; it needs a route.
found["reached"] = {
    "udp": attempt(reach, socket.AF_INET, socket.SOCK_DGRAM, "192.0.2.1"),
    "udp6": attempt(reach, socket.AF_INET6, socket.SOCK_DGRAM, "2001:db8::1"),
    "tcp": attempt(reach, socket.AF_INET, socket.SOCK_STREAM, "192.0.2.1"),
}

# Moves a directory out of the tree and back, swings a name between a directory and a link to /etc, rewrites a file in place
# with other lengths, and replaces another one whole, until a file tells it to stop.
os.makedirs("tree/deep/deep/deep")
for path in ("tree/mark", "tree/deep/mark", "tree/deep/deep/mark"):
    with open(path, "w") as file:
        file.write("0")
os.makedirs("spare")
open("spare/mark", "w").close()
open("changing", "w").close()
open("replaced", "w").close()
open("moving", "w").close()
turn, deadline = 0, time.monotonic() + 100
while not os.path.exists("enough") and time.monotonic() < deadline:
    turn += 1
    os.rename("tree/deep", "away")
    os.rename("spare", "swing")
    with open("changing", "r+b") as file:
        file.write(b"0" * (1 + turn % 7 * 100_000))
        file.truncate(turn % 5 * 50_000)
    with open("next", "wb") as file:
        file.write((b"a" if turn % 2 else b"b") * (300_000 if turn % 2 else 200_000))
    os.rename("next", "replaced")
    os.rename("swing", "spare")
    os.symlink("/etc", "swing")
    os.rename("away", "tree/deep")
    time.sleep(0.001)
    os.unlink("swing")
found["turns"] = turn

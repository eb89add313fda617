"""Summarises packages.csv (section, package, installed_kib) by section, largest first, into summary.json.

Runs inside the sandbox. One line per section, printed as it is computed, so that a reader sees output stream.
"""

import collections
import csv
import json
import time

sizes = collections.defaultdict(list)
with open("packages.csv", newline="") as file:
    for row in csv.DictReader(file):
        sizes[row["section"]].append((int(row["installed_kib"]), row["package"]))

summary = []
for section, packages in sorted(sizes.items(), key=lambda item: -sum(kib for kib, _ in item[1])):
    total_kib = sum(kib for kib, _ in packages)
    largest = max(packages)[1]
    summary.append({"section": section, "packages": len(packages), "total_kib": total_kib, "largest": largest})
    print(f"{section:<20} {len(packages):>4} packages {total_kib:>9} KiB, largest: {largest}", flush=True)
    time.sleep(0.05)

with open("summary.json", "w") as file:
    json.dump({"sections": summary, "packages": sum(s["packages"] for s in summary)}, file, indent=1)

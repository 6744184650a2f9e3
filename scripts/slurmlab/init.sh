#!/bin/bash
# Process 1 of a lab's namespaces. Arguments: the root directory, the host name, the shared directory.
# Says "ready" on standard output when the root is in place.
set -e
root=$1 name=$2 shared=$3
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mkdir -p "$root/shared" "$root/.old"
mount --bind "$shared" "$root/shared"

mount -t tmpfs -o mode=755 dev "$root/dev"
cd "$root/dev"
mkdir pts shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts pts
mount -t tmpfs -o mode=1777 shm shm
ln -s pts/ptmx ptmx
ln -s /proc/self/fd fd
ln -s fd/0 stdin
ln -s fd/1 stdout
ln -s fd/2 stderr
node() { mknod -m 666 "$1" c "$2" "$3"; }
node null 1 3
node zero 1 5
node full 1 7
node random 1 8
node urandom 1 9
node tty 5 0
node fuse 10 229
# Fake GPUs and their control nodes: real character devices without a driver behind them.
for i in 0 1 2 3; do node "nvidia$i" 195 "$i"; done
node nvidiactl 195 255
node nvidia-uvm 511 0
hostname "$name"

# pivot_root, not chroot: the kernel refuses user namespaces to a process in a chroot, and apptainer needs them.
cd "$root"
pivot_root . .old
cd /
umount -l /.old
echo ready
exec </dev/null >/dev/null 2>&1
# As process 1, bash reaps what the daemons and jobs leave behind.
while :; do
    sleep 3600 &
    wait $!
done

"""One of Flower's commands, by the zygote: what PATH leads to in place of the command that pip installed.

Called with the zygote's socket, and the command and its arguments. It passes them on with its own streams, directory
and environment, and ends as the fork does. It imports little: Flower starts a command for each message.
"""

import json
import os
import socket
import sys

with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as zygote:
    zygote.connect("\0" + sys.argv[1])
    words = {"arguments": sys.argv[2:], "cwd": os.getcwd(), "env": dict(os.environ)}
    socket.send_fds(zygote, [json.dumps(words).encode()], [0, 1, 2])
    status = int(zygote.recv(100) or 1)
if status < 0:
    os.kill(os.getpid(), -status)
sys.exit(status)

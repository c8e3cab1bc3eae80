"""Runs a command that ends with the process that has started it, even where that is killed.

Arguments: the number of that process, the user who runs the command ("" for its own), and the command.
"""

import ctypes
import os
import pwd
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    parent, user, *command = sys.argv[1:]
    if user:
        os.setuid(pwd.getpwnam(user).pw_uid)
    if sys.platform == "linux":
        # After the user, since another user's process forgets it. Another program in this process does not.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == int(parent):  # else it has ended already
        os.execvp(command[0], command)

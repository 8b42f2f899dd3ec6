"""`fleetchat doctor`: what works on this machine and fleet, what does not, and what to do about it.

One check a file: a plain function of what it looks at, returning a `Finding`. `examination.py` runs them in
order, takes the time of each and goes on after a failure where the next check still can.
"""

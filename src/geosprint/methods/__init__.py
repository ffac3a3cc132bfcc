"""Every way to make a schedule, ours and the rivals', behind one interface."""

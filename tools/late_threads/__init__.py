"""Tests run while the threads of C++ libraries come late."""

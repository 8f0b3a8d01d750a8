"""One vocabulary for who may serve a job: read from any carrier, composed over levels, checked, put into words.

Pure: no clock, chance, I/O or logging. It says what is allowed; ranking is the matcher's, storing the accounts'.
"""

"""The fault campaign: a real browser lives through every fault of a table, under load.

    table.py      the faults: how each is made, what is promised, how requests may end
    lab.py        the browser, its two tabs, the servers, and the copy of the build whose worker obeys worker.js
    requests.py   the load: requests of every kind, and how an answer is compared with the undisturbed one
    campaign.py   one fault after the other in a random order, and what must be true after each
    page.js, worker.js   what runs in the tabs and in the engine's worker

`python3 build.py faults` runs all of it (__main__.py), test_faults.py a few faults. It lives in tests/ because it uses
their browsers and servers, and because nothing of it is delivered.
"""

# MUST {"kind": "call", "verdict": ["pass"], "wall_s": 4.0, "note": "imports"}
import argparse, base64, calendar, configparser, contextlib, csv, difflib, email, glob, hashlib, html, inspect, io, logging, locale, mmap, multiprocessing, numbers, pathlib, platform, pprint, queue, secrets, select, shutil, signal, socket, sqlite3, struct, subprocess, traceback, unittest, urllib.parse, uuid, weakref, xml.etree.ElementTree, zlib, zoneinfo
logging.warning('x'); uuid.uuid4(); secrets.token_hex(); pathlib.Path('a').write_text('b')
def solve(xs): return sum(x * x for x in xs)

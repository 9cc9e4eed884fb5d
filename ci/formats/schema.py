"""Checks a file against a JSON schema: PYTHONPATH=FOLDER/python python3 schema.py SCHEMA FILE"""

import json
import sys

import jsonschema

schema, file = (json.load(open(name, encoding="utf-8")) for name in sys.argv[1:])
jsonschema.validators.validator_for(schema).check_schema(schema)
jsonschema.validate(file, schema)

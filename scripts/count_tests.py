"""Counts test cases in a Bazel build event file: prints "PASSED FAILED SKIPPED".

usage: count_tests.py EVENTS.json

Names the failed cases on standard error, each with the beginning of its message.

Cases are read from each test's XML. A test target that did not pass but has no failed case (it crashed, timed out or
was not built) counts as one failed case; a target that passed without XML counts as one passed case.
"""

import json
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree


def count_cases(path):
    """Returns ((passed, failed, skipped), [name and message of a failed case]), or None if the file can't be read."""
    try:
        cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return None
    failed = []
    for case in cases:
        failure = next((child for child in case if child.tag in ("failure", "error")), None)
        if failure is not None:
            message = failure.get("message") or failure.text or ""
            lines = [line[:400] for line in message.strip().splitlines()[:12]]
            failed.append("\n    ".join([f"{case.get('classname', '')}.{case.get('name', '')}", *lines]))
    skipped = sum(1 for case in cases if case.find("skipped") is not None or case.get("status") == "notrun")
    return (len(cases) - len(failed) - skipped, len(failed), skipped), failed


def is_chosen(tags, filters):
    """True if a test with these tags passes the words of --test_tag_filters."""
    wanted = {word.removeprefix("+") for word in filters if not word.startswith("-")}
    return not any("-" + tag in filters for tag in tags) and (not wanted or not wanted.isdisjoint(tags))


def read_events(path):
    """Returns ({label: [last result of each run and shard]}, {label of a test: its overall status}).

    Tests that --test_tag_filters leaves out have no status here, though Bazel builds them without --build_tests_only.
    """
    results, status, filters = {}, {}, []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:  # Bazel has not finished writing it
                continue
            ident = event.get("id", {})
            if "optionsParsed" in ident:
                for option in event["optionsParsed"].get("cmdLine", []):
                    if option.startswith("--test_tag_filters="):
                        filters = [word for word in option.partition("=")[2].split(",") if word]
            elif "targetConfigured" in ident and "testSize" in event.get("configured", {}):
                if is_chosen(event["configured"].get("tag", []), filters):
                    status.setdefault(ident["targetConfigured"]["label"], "NOT_BUILT")
            elif "testResult" in ident and "testResult" in event:
                one = ident["testResult"]
                # A later attempt replaces an earlier one.
                results.setdefault(one["label"], {})[one.get("run", 0), one.get("shard", 0)] = event["testResult"]
            elif "testSummary" in ident and "testSummary" in event:
                status[ident["testSummary"]["label"]] = event["testSummary"].get("overallStatus", "NO_STATUS")
            elif event.get("aborted", {}).get("reason") == "SKIPPED" and "targetCompleted" in ident:
                status[ident["targetCompleted"]["label"]] = "SKIPPED"
    return results, status


def main():
    passed = failed = skipped = 0
    try:
        results, status = read_events(sys.argv[1])
    except OSError:  # Bazel exited before it wrote anything
        print(0, 0, 0)
        return
    for label, overall in status.items():
        if overall == "SKIPPED":
            skipped += 1
            continue
        failed_here = 0
        failures = []
        good = overall in ("PASSED", "FLAKY")
        for result in results.get(label, {}).values():
            files = {f["name"]: f.get("uri", "") for f in result.get("testActionOutput", [])}
            xml = urllib.parse.unquote(urllib.parse.urlparse(files.get("test.xml", "")).path)
            cases, failed_cases = count_cases(xml) or ((0, 0, 0), [])
            failures += failed_cases
            if sum(cases) == 0:
                cases = (1, 0, 0) if good else (0, 1, 0)
            passed += cases[0]
            failed_here += cases[1]
            skipped += cases[2]
        if not good and failed_here == 0:
            failed_here = 1
        failed += failed_here
        if failed_here:
            print("\n  ".join([f"{label}: {overall}", *failures]), file=sys.stderr)
    print(passed, failed, skipped)


if __name__ == "__main__":
    main()

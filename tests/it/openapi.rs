//! Generated and hand-written descriptions of the interface, held to the code: the OpenAPI document and the pages of the error
//! codes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use service::http::{Code, openapi_json};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the repository").join("docs")
}

/// `UPDATE_OPENAPI=1` writes the pinned file anew.
#[test]
fn the_document_is_the_pinned_one() {
    let current = openapi_json() + "\n";
    let path = docs().join("openapi.json");
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        fs::write(&path, &current).expect("docs can be written");
    }
    let pinned = fs::read_to_string(&path).expect("docs/openapi.json is there");
    assert!(
        pinned == current,
        "the interface differs from docs/openapi.json: look at the difference and, when it is meant, run this test with \
         UPDATE_OPENAPI=1"
    );
}

#[test]
fn every_operation_is_described_whole() {
    let document: Value = serde_json::from_str(&openapi_json()).expect("the document is JSON");
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().expect("paths");
    let mut names = BTreeSet::new();
    for (path, item) in paths {
        for (method, operation) in item.as_object().expect("an item") {
            let here = format!("{method} {path}");
            assert!(operation["summary"].is_string(), "{here} has no summary");
            let name = operation["operationId"].as_str().expect("an operation id");
            assert!(names.insert(name.to_owned()), "{name} is there twice");
            if path.starts_with("/v1/") {
                assert!(
                    operation["responses"]["default"].is_object(),
                    "{here} does not describe its failures"
                );
                assert!(operation.get("security").is_none(), "{here} has a security of its own");
            } else {
                assert_eq!(operation["security"], serde_json::json!([]), "{here}");
            }
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                if parameter["in"] == "path" {
                    let name = parameter["name"].as_str().expect("a name");
                    assert!(path.contains(&format!("{{{name}}}")), "{here} has no {name}");
                }
            }
        }
    }
    assert_eq!(names.len(), 23, "{names:?}");
}

/// What is referred to is there, so that generated clients compile.
#[test]
fn every_reference_leads_somewhere() {
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(object) => {
                if let Some(Value::String(target)) = object.get("$ref") {
                    found.insert(target.clone());
                }
                object.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let document: Value = serde_json::from_str(&openapi_json()).expect("the document is JSON");
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.contains("#/components/schemas/Problem"), "{found:?}");
    for target in found {
        let pointer = target.strip_prefix('#').expect("a reference within the document");
        assert!(document.pointer(pointer).is_some(), "{target} leads nowhere");
    }
}

#[test]
fn every_code_has_its_page_and_every_page_its_code() {
    let codes: BTreeSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(codes.len(), Code::ALL.len(), "a code is there twice");
    let pages: BTreeSet<String> = fs::read_dir(docs().join("errors"))
        .expect("docs/errors is there")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a UTF-8 name"))
        .filter(|name| name != "README.md")
        .map(|name| name.strip_suffix(".md").expect("only pages").to_owned())
        .collect();
    assert_eq!(codes, pages.iter().map(String::as_str).collect::<BTreeSet<_>>());
}

#[test]
fn every_page_says_what_the_code_says() {
    let word = |yes| if yes { "yes" } else { "no" };
    let index = fs::read_to_string(docs().join("errors/README.md")).expect("an index");
    for code in Code::ALL {
        let (name, status) = (code.as_str(), code.status().as_u16());
        let (retryable, no_side_effect) = (word(code.retryable()), word(code.no_side_effect()));
        let page = fs::read_to_string(docs().join(format!("errors/{name}.md"))).expect("a page");
        let head = format!(
            "# {name}\n\nStatus {status} · retryable: {retryable} · no side effect: {no_side_effect}\n"
        );
        assert!(page.starts_with(&head), "{name}: {head}");
        for section in ["\n## When\n", "\n## What to do\n", "\n## Effects\n"] {
            assert!(page.contains(section), "{name} lacks {section:?}");
        }
        let row = format!("| [{name}]({name}.md) | {status} | {retryable} | {no_side_effect} |");
        assert!(index.contains(&row), "the index lacks: {row}");
    }
}

//! Answers are what the OpenAPI document says: every schema of an answer is held against a real one.

use jsonschema::Validator;
use reqwest::Method;
use serde_json::{Value, json};
use tests::api::id;

use super::harness::Api;

/// A validator of one schema of the document (OpenAPI 3.1 schemas are JSON Schema 2020-12).
fn validator(document: &Value, name: &str) -> Validator {
    let mut schema = document.clone();
    schema["$ref"] = json!(format!("#/components/schemas/{name}"));
    jsonschema::draft202012::new(&schema).expect("a schema")
}

fn assert_fits(document: &Value, name: &str, answer: &Value) {
    let faults: Vec<String> = validator(document, name)
        .iter_errors(answer)
        .map(|fault| format!("{}: {fault}", fault.instance_path()))
        .collect();
    assert!(faults.is_empty(), "{name}: {faults:?}\n{answer}");
    // The document names every field: it describes the answer, not a part of it.
    let properties = document["components"]["schemas"][name]["properties"].as_object().expect("properties");
    for key in answer.as_object().expect("an object").keys() {
        assert!(properties.contains_key(key), "{name} does not describe {key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_what_the_document_says() {
    let api = Api::start().await;
    let (status, document) = api.get("/openapi.json").await;
    assert_eq!(status, 200);
    let fits = |name: &str, answer: &Value| assert_fits(&document, name, answer);

    let (run, lease) = api.lease().await;
    fits("Lease", &lease);
    let path = format!("/v1/leases/{}", id(&lease, "lease_id"));
    let put = api.request(Method::PUT, &format!("{path}/files/a")).body("x").send().await.expect("an answer");
    fits("FileWritten", &put.json().await.expect("JSON"));
    let made = api.run(&lease, &json!({"argv": ["sh", "-c", "echo x; echo y > b"], "stdin": "in"})).await;
    fits("Command", &made);
    let raw = api.run(&lease, &json!({"argv": ["cat"], "stdin_base64": "/w=="})).await;
    fits("Command", &raw);
    let killed = api.run(&lease, &json!({"argv": ["sleep", "600"], "timeout_seconds": 0.1})).await;
    fits("Command", &killed);
    fits("Evidence", &killed["evidence"]);
    let body = json!({"argv": ["sleep", "600"], "wait_seconds": 0});
    let (_, running) = api.post(&format!("{path}/commands"), &body).await;
    fits("Command", &running);
    fits("Lease", &api.get(&path).await.1);
    fits("Page_FileEntry", &api.get(&format!("{path}/files?recursive=true")).await.1);
    fits("Page_Lease", &api.get("/v1/leases").await.1);
    fits("Page_Command", &api.get("/v1/commands").await.1);
    fits("Page_Event", &api.get(&format!("/v1/runs/{run}/events?limit=3")).await.1);
    fits("Problem", &api.get("/v1/leases?limit=0").await.1);
    fits("Problem", &api.post(&format!("{path}/renew"), &json!({"ttl_seconds": 0})).await.1);
    let proof = api.until_sealed("/v1/log/proof?position=0").await;
    fits("InclusionProof", &proof);
    fits("ConsistencyProof", &api.get("/v1/log/consistency?from=1").await.1);
    fits("Health", &api.get("/healthz").await.1);
    fits("ReadinessReport", &api.get("/readyz").await.1);
    fits("RunClosing", &api.post_empty(&format!("/v1/runs/{run}/close")).await.1);
    fits("Lease", &api.get(&path).await.1);
    api.stop().await;
}

/// The check above can fail.
#[test]
fn a_wrong_answer_does_not_fit() {
    let document: Value = serde_json::from_str(&service::http::openapi_json()).expect("JSON");
    let closing = |state: &str| json!({"run_id": "0190f0f0-0000-7000-8000-000000000001", "state": state, "position": 1});
    let validator = validator(&document, "RunClosing");
    assert!(validator.is_valid(&closing("closed")));
    assert!(!validator.is_valid(&closing("Closed")));
    assert!(!validator.is_valid(&json!({"state": "closed"})));
}

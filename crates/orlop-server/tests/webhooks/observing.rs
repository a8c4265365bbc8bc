//! Webhooks in the audit log, in metrics and in traces.

use std::sync::Arc;

use orlop_audit::{
    Auditor, Metrics, Policy,
    backend::{BatchOptions, Format, LogBackend, LogOptions, Mode, RotationOptions},
};
use orlop_trace::{Exporter, Tracer};
use serde_json::json;

use super::*;

/// Returns a server whose audit events, at this level, are written to a file before a request is answered.
fn audited(chain: Chain, level: &str, log: &std::path::Path) -> Chain {
    let batch = BatchOptions {
        mode: Mode::Blocking,
        buffer_events_max: 1000,
        batch_events_max: 1,
        batch_wait_max: std::time::Duration::ZERO,
        throttle: None,
    };
    let (path, rotation, format) = (log.to_owned(), RotationOptions::default(), Format::Json);
    let options = LogOptions { path, rotation, format, batch, truncate: None };
    let metrics = Metrics::default();
    let backend = LogBackend::open(options, metrics.clone()).unwrap();
    let policy = format!(
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{{level: {level}}}]"
    );
    let policy = Policy::parse(policy.as_bytes()).unwrap();
    chain.with_auditor(Some(Arc::new(Auditor::new(policy, vec![Arc::new(backend)], metrics))))
}

/// Returns the annotations of webhooks of the last event.
fn annotations(log: &std::path::Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(log).unwrap();
    let event: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let all = event["annotations"].as_object().unwrap().iter();
    let of_webhooks = all.filter(|(key, _)| !key.starts_with("authorization.k8s.io/"));
    of_webhooks.map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned())).collect()
}

#[tokio::test]
async fn audit_events_tell_what_webhooks_did() {
    let folder = tempfile::tempdir().unwrap();
    let hook = Hook::start(&[], |review| {
        use base64::{Engine, engine::general_purpose::STANDARD};
        let patch = STANDARD.encode(r#"[{"op":"add","path":"/data/x","value":"y"}]"#);
        let annotations = json!({"verdict": "fine", "not/valid": "dropped"});
        response(
            review,
            json!({"allowed": true, "patchType": "JSONPatch", "patch": patch, "auditAnnotations": annotations}),
        )
    })
    .await;
    let chain = server().await;
    let mut gone = webhook(&hook, "gone.example.com");
    gone["clientConfig"]["url"] = "https://127.0.0.1:1/".into();
    gone["failurePolicy"] = "Ignore".into();
    configure(&chain, MUTATING, "conf", &[webhook(&hook, "a.example.com"), gone.clone()]).await;
    configure(&chain, VALIDATING, "conf", &[gone]).await;
    let text = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let always = [
        text("a.example.com/verdict", "fine"),
        text("failed-open.mutation.webhook.admission.k8s.io/round_0_index_1", "gone.example.com"),
        text("failed-open.validating.webhook.admission.k8s.io/round_0_index_0", "gone.example.com"),
        text(
            "mutation.webhook.admission.k8s.io/round_0_index_0",
            r#"{"configuration":"conf","webhook":"a.example.com","mutated":true}"#,
        ),
        text(
            "mutation.webhook.admission.k8s.io/round_0_index_1",
            r#"{"configuration":"conf","webhook":"gone.example.com","mutated":false}"#,
        ),
    ];
    let patched = text(
        "patch.webhook.admission.k8s.io/round_0_index_0",
        r#"{"configuration":"conf","webhook":"a.example.com","patch":[{"op":"add","path":"/data/x","value":"y"}],"patchType":"JSONPatch"}"#,
    );
    for (level, name) in [("Metadata", "m"), ("Request", "n")] {
        let log = folder.path().join(level);
        let chain = audited(chain.clone(), level, &log);
        assert_eq!(call(&chain, "POST", MAPS, Some(&config_map(name))).await.0, 201);
        let mut expected = always.to_vec();
        if level == "Request" {
            expected.push(patched.clone());
        }
        let mut found = annotations(&log);
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{level}");
    }
}

#[tokio::test]
async fn metrics_count_calls_rejections_and_failures() {
    let hook = Hook::start(&[], |review| {
        response(review, json!({"allowed": false, "status": {"code": 403, "message": "no"}}))
    })
    .await;
    let chain = server().await;
    let mut gone = webhook(&hook, "gone.example.com");
    gone["clientConfig"]["url"] = "https://127.0.0.1:1/".into();
    gone["failurePolicy"] = "Ignore".into();
    let mut skipped = webhook(&hook, "skipped.example.com");
    skipped["matchConditions"] = json!([{"name": "never", "expression": "false"}]);
    configure(&chain, VALIDATING, "c", &[webhook(&hook, "a.example.com"), gone, skipped]).await;
    assert_eq!(call(&chain, "POST", MAPS, Some(&config_map("m"))).await.0, 403);
    let metrics = call(&chain, "GET", "/metrics", None).await.1;
    let metrics = metrics.as_str().unwrap();
    for expected in [
        r#"apiserver_admission_webhook_request_total{name="a.example.com",type="validating",operation="CREATE",code="403",rejected="true"} 1"#,
        r#"apiserver_admission_webhook_request_total{name="gone.example.com",type="validating",operation="CREATE",code="503",rejected="false"} 1"#,
        r#"apiserver_admission_webhook_rejection_count{name="a.example.com",type="validating",operation="CREATE",error_type="no_error",rejection_code="403"} 1"#,
        r#"apiserver_admission_webhook_fail_open_count{name="gone.example.com",type="validating"} 1"#,
        r#"apiserver_admission_webhook_admission_duration_seconds_count{name="a.example.com",type="validating",operation="CREATE",rejected="true"} 1"#,
        r#"apiserver_admission_match_condition_exclusions_total{name="skipped.example.com",kind="webhook",type="validate",operation="CREATE"} 1"#,
    ] {
        assert!(metrics.contains(expected), "{expected}");
    }
}

#[tokio::test]
async fn calls_are_part_of_the_requests_trace() {
    let folder = tempfile::tempdir().unwrap();
    // Nobody collects the spans: they are dropped.
    let collector = format!("unix://{}", folder.path().join("none.sock").display());
    let tracer = Tracer::new(Exporter::start(&collector, "test").unwrap(), 0);
    let chain = server().await.with_tracer(Some(Arc::new(tracer)));
    let hook = Hook::start(&[], allow).await;
    configure(&chain, MUTATING, "m", &[webhook(&hook, "m.example.org")]).await;
    configure(&chain, VALIDATING, "v", &[webhook(&hook, "v.example.org")]).await;
    let (code, ..) = send(&chain, "POST", MAPS, &config_map("untraced")).await;
    assert_eq!((code, hook.take_traces()), (201, Vec::new()));
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{trace}-00f067aa0ba902b7-01");
    let headers = [("content-type", "application/json"), ("traceparent", parent.as_str())];
    let response = ask(&chain, "POST", MAPS, &headers, config_map("traced").to_string()).await;
    assert_eq!(whole(response).await.0, 201);
    let traces = hook.take_traces();
    assert_eq!(traces.len(), 2, "one call each: {traces:?}");
    for received in traces {
        let parts: Vec<&str> = received.split('-').collect();
        assert_eq!((parts[1], parts[3]), (trace, "01"), "{received}");
        assert_ne!(parts[2], "00f067aa0ba902b7", "the parent is a span of this server");
    }
}

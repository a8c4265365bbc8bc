//! Audit annotations of policies.

use std::{sync::Arc, time::Duration};

use orlop_audit::{
    Auditor, Metrics, Policy,
    backend::{BatchOptions, Format, LogBackend, LogOptions, Mode, RotationOptions},
};
use serde_json::{Value, json};

use super::{binding, server, support::create, try_create, validate};

#[tokio::test]
async fn failures_and_annotations_are_audited() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    let batch = BatchOptions {
        mode: Mode::Blocking,
        buffer_events_max: 1000,
        batch_events_max: 1,
        batch_wait_max: Duration::ZERO,
        throttle: None,
    };
    let options = LogOptions {
        path: log.clone(),
        rotation: RotationOptions::default(),
        format: Format::Json,
        batch,
        truncate: None,
    };
    let metrics = Metrics::default();
    let backend = LogBackend::open(options, metrics.clone()).unwrap();
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]";
    let auditor = Auditor::new(Policy::parse(policy.as_bytes()).unwrap(), vec![Arc::new(backend)], metrics);
    let chain = server().await.with_auditor(Some(Arc::new(auditor)));

    let spec = json!({
        "validations": [{"expression": "true"}, {"expression": "object.data.a == 'x'", "message": "not \"x\""}],
        "auditAnnotations": [
            {"key": "value", "valueExpression": "'a is ' + object.data.a"},
            {"key": "absent", "valueExpression": "' '"},
        ],
    });
    validate(&chain, spec, json!({"validationActions": ["Audit"]})).await;
    let bindings = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
    let second = binding(
        "ValidatingAdmissionPolicyBinding",
        "c",
        "p",
        json!({"validationActions": ["Audit", "Deny"]}),
    );
    create(&chain, bindings, &second).await;
    let (code, _) = try_create(&chain, "m", json!({"a": "y"})).await;
    assert_eq!(code, 422);
    let text = std::fs::read_to_string(&log).unwrap();
    let event: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let annotations = &event["annotations"];
    assert_eq!(annotations["p/value"], "a is y", "equal values of two bindings are one");
    assert_eq!(annotations["p/absent"], Value::Null);
    assert_eq!(
        annotations["validation.policy.admission.k8s.io/validation_failure"],
        r#"[{"message":"not \"x\"","policy":"p","binding":"b","expressionIndex":1,"validationActions":["Audit"]},{"message":"not \"x\"","policy":"p","binding":"c","expressionIndex":1,"validationActions":["Audit","Deny"]}]"#
    );
    // An annotation that fails denies, whatever the actions are.
    let (code, message) = try_create(&chain, "m", json!({})).await;
    assert_eq!(code, 422);
    assert!(
        message.contains(
            "denied request: expression ''a is ' + object.data.a' resulted in error: no such key: data"
        ),
        "{message}"
    );
}

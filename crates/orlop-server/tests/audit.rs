//! Audit events of requests, as the log backend writes them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use orlop_audit::{
    Auditor, Metrics, Policy,
    backend::{BatchOptions, Format, LogBackend, LogOptions, Mode, RotationOptions},
};
use orlop_server::{
    Tokens, User,
    auth::{
        Authorizer, Decision, Evaluation,
        authorizer::{Authorizing, Rules, decided},
        issuer::Issuer,
    },
    chain::Chain,
    cluster::Cluster,
    registry::Kinds,
    request::Attributes,
};
use orlop_store::{Config, Endpoint, Store};
use serde_json::{Value, json};
use support::{apply, ask, call, get, server, whole};

const PODS: &str = "/api/v1/namespaces/default/configmaps";

/// A server whose events are written to a file.
struct Audited {
    chain: Chain,
    log: PathBuf,
    _folder: tempfile::TempDir,
}

async fn audited(mode: Mode, path: Option<&str>, policy: &str) -> Audited {
    audited_on(server().await.0, mode, path, policy)
}

fn audited_on(chain: Chain, mode: Mode, path: Option<&str>, policy: &str) -> Audited {
    let folder = tempfile::tempdir().unwrap();
    let log = path.map_or_else(|| folder.path().join("audit.log"), PathBuf::from);
    let batch = BatchOptions {
        mode,
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
    let policy = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{policy}");
    let policy = Policy::parse(policy.as_bytes()).unwrap();
    let auditor = Auditor::new(policy, vec![Arc::new(backend)], metrics);
    Audited { chain: chain.with_auditor(Some(Arc::new(auditor))), log, _folder: folder }
}

impl Audited {
    /// Returns the events so far.
    fn events(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.log).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns the events once there are as many.
    async fn wait_for(&self, count: usize) -> Vec<Value> {
        for _ in 0..1000 {
            let events = self.events();
            if events.len() >= count {
                return events;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no {count} events: {:?}", self.events());
    }
}

async fn at_level(level: &str) -> Audited {
    let policy =
        format!("omitStages: [RequestReceived]\nomitManagedFields: true\nrules: [{{level: {level}}}]");
    audited(Mode::Blocking, None, &policy).await
}

fn config_map() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "plaintext"}})
}

#[tokio::test]
async fn metadata_level_tells_who_did_what_and_no_bodies() {
    let server = at_level("Metadata").await;
    call(&server.chain, "POST", PODS, Some(&config_map())).await;
    get(&server.chain, &format!("{PODS}/a")).await;
    get(&server.chain, &format!("{PODS}/missing")).await;
    get(&server.chain, PODS).await;
    call(&server.chain, "DELETE", &format!("{PODS}/a"), None).await;
    let events = server.wait_for(5).await;
    let [create, read, missing, list, delete] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((&create["stage"], &create["level"]), (&json!("ResponseComplete"), &json!("Metadata")));
    assert_eq!(
        create["user"],
        json!({"username": "admin", "groups": ["system:masters", "system:authenticated"]})
    );
    assert_eq!((&create["verb"], &create["requestURI"]), (&json!("create"), &json!(PODS)));
    let reference =
        json!({"resource": "configmaps", "namespace": "default", "name": "a", "apiVersion": "v1"});
    assert_eq!(create["objectRef"], reference, "the name comes from the body");
    assert_eq!(create["responseStatus"], json!({"metadata": {}, "code": 201}));
    assert_eq!(create["annotations"]["authorization.k8s.io/decision"], "allow");
    assert_eq!(read["responseStatus"]["code"], 200);
    assert_eq!(missing["responseStatus"]["reason"], "NotFound");
    assert_eq!(missing["responseStatus"]["details"], json!({"name": "missing", "kind": "configmaps"}));
    assert_eq!((&list["verb"], &list["responseStatus"]["code"]), (&json!("list"), &json!(200)));
    assert_eq!(delete["responseStatus"]["status"], "Success", "a delete answers with a Status");
    assert_eq!(delete["responseStatus"]["details"]["name"], "a");
    assert!(!std::fs::read_to_string(&server.log).unwrap().contains("plaintext"));
}

#[tokio::test]
async fn object_of_a_list_is_the_one_that_its_selector_names() {
    let rule =
        "rules: [{level: Metadata, resources: [{group: '', resources: [secrets], resourceNames: [s]}]}]";
    let server = audited(Mode::Blocking, None, &format!("omitStages: [RequestReceived]\n{rule}")).await;
    let secrets = "/api/v1/namespaces/default/secrets";
    for name in ["other", "s"] {
        get(&server.chain, &format!("{secrets}?fieldSelector=metadata.name%3D{name}")).await;
    }
    let events = server.wait_for(1).await;
    let reference = json!({"resource": "secrets", "namespace": "default", "name": "s", "apiVersion": "v1"});
    assert_eq!(events.iter().map(|event| &event["objectRef"]).collect::<Vec<_>>(), [&reference]);
}

#[derive(Debug)]
struct Broken;

#[async_trait]
impl Authorizer for Broken {
    fn authorize<'a>(&'a self, _attributes: &'a Attributes) -> Authorizing<'a> {
        decided(Evaluation {
            decision: Decision::NoOpinion("".into()),
            errors: vec!["the webhook is gone".to_owned()],
        })
    }

    async fn rules(&self, _user: &User, _namespace: &str) -> Rules {
        Rules::default()
    }
}

#[tokio::test]
async fn a_decision_that_could_not_be_made_is_told_as_such() {
    let store = Store::open(Config::new(Endpoint::Memory)).await.unwrap();
    let cluster = Arc::new(Cluster::new(store, Kinds::builtin(), Issuer::generate().unwrap()));
    let chain = Chain::new(cluster.clone(), Tokens::default());
    cluster.authorizer().replace(vec![Arc::new(Broken)]);
    let policy = "omitStages: [RequestReceived]\nrules: [{level: Metadata}]";
    let server = audited_on(chain, Mode::Blocking, None, policy);
    let ann = User::authenticated("ann", []);
    let request = Request::get(PODS).body(Full::<Bytes>::default()).unwrap();
    assert_eq!(server.chain.answer(request, Some(&ann)).await.status(), 500);
    let events = server.wait_for(1).await;
    assert_eq!(events[0]["annotations"], json!({"authorization.k8s.io/reason": "internal error"}));
}

#[tokio::test]
async fn issued_tokens_are_known_by_their_ids() {
    let server = at_level("Metadata").await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "builder"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    call(&server.chain, "POST", accounts, Some(&account)).await;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let path = format!("{accounts}/builder/token");
    let (_, issued) = call(&server.chain, "POST", &path, Some(&request)).await;
    let token = issued["status"]["token"].as_str().unwrap().to_owned();
    let use_of_it = Request::get(PODS).header("authorization", format!("Bearer {token}"));
    let use_of_it = use_of_it.body(Full::<Bytes>::default()).unwrap();
    assert_eq!(server.chain.answer(use_of_it, None).await.status(), 403);
    let events = server.wait_for(3).await;
    let [_, issue, used] = events.as_slice() else { panic!("{events:?}") };
    let id = &issue["annotations"]["authentication.kubernetes.io/issued-credential-id"];
    assert!(id.as_str().is_some_and(|id| id.starts_with("JTI=")), "{issue}");
    assert_eq!(used["user"]["extra"]["authentication.kubernetes.io/credential-id"], json!([id]));
    assert!(!std::fs::read_to_string(&server.log).unwrap().contains(&token), "never the token itself");
}

#[tokio::test]
async fn request_and_response_levels_record_objects() {
    let request = at_level("Request").await;
    call(&request.chain, "POST", PODS, Some(&config_map())).await;
    call(&request.chain, "PATCH", &format!("{PODS}/a"), Some(&json!({"data": {"k": "b"}}))).await;
    apply(&request.chain, &format!("{PODS}/b?fieldManager=x"), &config_map()).await;
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
    call(&request.chain, "DELETE", &format!("{PODS}/a"), Some(&options)).await;
    let events = request.wait_for(4).await;
    assert_eq!(events[0]["requestObject"]["data"]["k"], "plaintext");
    assert!(events.iter().all(|event| event.get("responseObject").is_none()));
    assert_eq!(events[1]["requestObject"], json!({"data": {"k": "b"}}));
    assert_eq!(events[2]["requestObject"]["kind"], "ConfigMap");
    assert_eq!(events[3]["requestObject"]["gracePeriodSeconds"], 0);

    let both = at_level("RequestResponse").await;
    call(&both.chain, "POST", PODS, Some(&config_map())).await;
    let yaml = [("accept", "application/yaml")];
    whole(ask(&both.chain, "GET", &format!("{PODS}/a"), &yaml, "").await).await;
    let protobuf = [("accept", "application/vnd.kubernetes.protobuf")];
    whole(ask(&both.chain, "GET", &format!("{PODS}/a"), &protobuf, "").await).await;
    get(&both.chain, PODS).await;
    get(&both.chain, &format!("{PODS}/missing")).await;
    let events = both.wait_for(5).await;
    for event in &events[..3] {
        assert_eq!(event["responseObject"]["data"]["k"], "plaintext", "{event}");
        assert!(event["responseObject"]["metadata"].get("managedFields").is_none());
    }
    assert_eq!(events[3]["responseObject"]["kind"], "ConfigMapList");
    let items = events[3]["responseObject"]["items"].as_array().unwrap();
    assert!(items.iter().any(|item| item["metadata"]["name"] == "a"));
    assert!(items.iter().all(|item| item["metadata"].get("managedFields").is_none()));
    assert_eq!(events[4]["responseObject"]["reason"], "NotFound");
}

#[tokio::test]
async fn watch_has_an_event_at_its_start_and_at_its_end() {
    let server = audited(Mode::Blocking, None, "rules: [{level: RequestResponse}]").await;
    let response = ask(&server.chain, "GET", &format!("{PODS}?watch=1"), &[], "").await;
    let stages = |events: Vec<Value>| -> Vec<String> {
        events.iter().map(|event| event["stage"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(stages(server.events()), ["RequestReceived", "ResponseStarted"]);
    drop(response);
    let events = server.wait_for(3).await;
    assert_eq!(events[2]["responseStatus"]["code"], 200);
    assert!(events[2].get("responseObject").is_none());
    assert_eq!(stages(events), ["RequestReceived", "ResponseStarted", "ResponseComplete"]);
}

#[tokio::test]
async fn refused_and_impersonating_requests_are_audited() {
    let server = at_level("Metadata").await;
    let request = |header: &str, value: &str| {
        Request::get(PODS).header(header, value).body(Full::new(Bytes::new())).unwrap()
    };
    let response = server.chain.answer(request("authorization", "Bearer wrong"), None).await;
    assert_eq!(response.status(), 401);
    response.into_body().collect().await.unwrap();
    let headers = [("impersonate-user", "bob"), ("audit-id", "mine"), ("user-agent", "test")];
    whole(ask(&server.chain, "GET", PODS, &headers, "").await).await;
    let masters = [("impersonate-user", "bob"), ("impersonate-group", "system:masters")];
    whole(ask(&server.chain, "GET", PODS, &masters, "").await).await;
    let events = server.wait_for(3).await;
    assert_eq!((&events[0]["stage"], &events[0]["user"]), (&json!("ResponseStarted"), &json!({})));
    assert_eq!(events[0]["responseStatus"]["reason"], "Unauthorized");
    assert_eq!((&events[1]["auditID"], &events[1]["userAgent"]), (&json!("mine"), &json!("test")));
    assert_eq!(events[1]["user"]["username"], "admin");
    assert_eq!(events[1]["impersonatedUser"]["username"], "bob");
    assert_eq!(events[1]["authenticationMetadata"]["impersonationConstraint"], "impersonate:user-info");
    // No constrained mode is for this group.
    assert_eq!(events[2]["impersonatedUser"]["groups"][0], "system:masters");
    assert_eq!(events[2].get("authenticationMetadata"), None);
    assert_eq!(events[1]["responseStatus"]["code"], 403);
    assert_eq!(events[1]["annotations"]["authorization.k8s.io/decision"], "forbid");
}

#[tokio::test]
async fn strict_log_that_cannot_be_written_fails_requests() {
    let rules = "rules: [{level: Metadata, resources: [{resources: [configmaps]}]}]";
    let strict = audited(Mode::BlockingStrict, Some("/dev/full"), rules).await;
    let (code, status) = get(&strict.chain, &format!("{PODS}/a")).await;
    assert_eq!(
        (code, &status["message"]),
        (500, &json!("Internal error occurred: failed to store audit event"))
    );
    let lenient = audited(Mode::Blocking, Some("/dev/full"), rules).await;
    assert_eq!(get(&lenient.chain, &format!("{PODS}/a")).await.0, 404);
    let (_, metrics) = get(&strict.chain, "/metrics").await;
    let metrics = metrics.as_str().unwrap();
    assert!(metrics.contains("apiserver_audit_requests_rejected_total 1"), "{metrics}");
    assert!(metrics.contains("apiserver_audit_error_total{plugin=\"log\"}"), "{metrics}");
    assert!(metrics.contains("apiserver_audit_level_total{level=\"Metadata\"}"), "{metrics}");
}

#[tokio::test]
async fn abandoned_request_is_audited_as_closed_early() {
    let server = at_level("Metadata").await;
    // A body that never arrives.
    let (sender, pieces) = tokio::sync::mpsc::channel(1);
    let body = orlop_server::http::body::Body::Stream(pieces);
    let request = Request::post(PODS).header("content-type", "application/json").body(body).unwrap();
    let admin = User::master("admin");
    let answered =
        tokio::time::timeout(Duration::from_millis(50), server.chain.answer(request, Some(&admin))).await;
    assert!(answered.is_err());
    drop(sender);
    let events = server.wait_for(1).await;
    assert_eq!(events[0]["responseStatus"]["message"], "Connection closed early");
}

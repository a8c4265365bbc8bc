//! The start of the program: without AWS, and with the credentials of a service account.

use std::collections::BTreeMap;

use orlop_aws::Settings;
use serde_json::json;

use crate::{
    harness::{At, Harness, at, of_account, settings},
    kinds::TRUST,
    metadata::{Metadata, SECRET, TOKEN},
    permissions::create_function,
    process::{Gateway, Process},
    proxy::{Fault, Proxy},
    simulators::{Simulator, free_port, ministack, moto},
    stage::{bridge, create_zone},
};

#[tokio::test(flavor = "multi_thread")]
async fn process_stays_up_unready_while_aws_is_unreachable_and_recovers() {
    let account = "300000000001";
    let proxy = Proxy::start(&ministack(account).address).await;
    proxy.inject("", Fault::CutBefore, usize::MAX);
    let harness = Harness::without_controllers(of_account(&proxy.address, account)).await;
    let gateway = Gateway::start(&harness.client).await;
    let address = format!("127.0.0.1:{}", free_port());
    let more = ["--metrics-addr", address.as_str(), "--kinds", "Role"];
    let mut process = Process::start(&gateway, &proxy.address, account, &more);
    let probes = Simulator::server(format!("http://{address}"));
    harness.installed().await;
    let role = at("iam", "roles", "default", "early");
    harness
        .apply(&role, "Role", json!({}), json!({"name": "early", "assumeRolePolicyDocument": TRUST}))
        .await;
    let tried = async || (proxy.cut() >= 3).then_some(());
    harness.until("several tries", tried).await;
    assert!(process.is_running());
    assert_eq!(probes.send("", "GET", "/healthz", &[], "").await.0, 200);
    assert_ne!(probes.send("", "GET", "/readyz", &[], "").await.0, 200);
    proxy.clear();
    let ready = async || (probes.send("", "GET", "/readyz", &[], "").await.0 == 200).then_some(());
    harness.until("it becomes ready", ready).await;
    harness.synced(&role).await;
    harness.delete(&role).await;
    harness.gone(&role).await;
}

/// IRSA: a token file and a role, as EKS gives them to a pod. Namespaces have roles of their own on top.
#[tokio::test(flavor = "multi_thread")]
async fn token_of_a_service_account_is_exchanged_and_appears_nowhere() {
    let token = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(token.path(), "very.secret.token\n").expect("written");
    let variables = BTreeMap::from([
        ("AWS_WEB_IDENTITY_TOKEN_FILE".to_owned(), token.path().to_string_lossy().into_owned()),
        ("AWS_ROLE_ARN".to_owned(), "arn:aws:iam::444444444444:role/irsa".to_owned()),
        ("AWS_EC2_METADATA_DISABLED".to_owned(), "true".to_owned()),
    ]);
    let proxy = Proxy::start(&moto().address).await;
    let harness = Harness::start(Settings { environment: Some(variables), ..settings(&proxy.address) }).await;
    harness.namespace("ack-system", json!({})).await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ack-role-account-map"},
        "data": {"555555555555": "arn:aws:iam::555555555555:role/team"}});
    let maps = "/api/v1/namespaces/ack-system/configmaps";
    harness.call("POST", maps, Some(("application/json", &map))).await.expect("a map");
    harness.namespace("team", json!({"services.k8s.aws/owner-account-id": "555555555555"})).await;
    for (namespace, account) in [("default", "444444444444"), ("team", "555555555555")] {
        let role = at("iam", "roles", namespace, "irsa");
        let spec = json!({"name": "irsa-made", "assumeRolePolicyDocument": TRUST});
        harness.apply(&role, "Role", json!({}), spec).await;
        let synced = harness.synced(&role).await;
        assert_eq!(synced["status"]["ackResourceMetadata"]["ownerAccountID"], account);
        assert!(!synced.to_string().contains("very.secret"));
        harness.delete(&role).await;
        harness.gone(&role).await;
    }
    let made = proxy.made();
    assert!(made.iter().any(|call| call.contains("AssumeRoleWithWebIdentity")), "{made:?}");
    let events = harness.call("GET", "/api/v1/events", None).await.expect("events").to_string();
    assert!(!events.contains("very.secret"));
}

/// EKS pod identity and an instance's role: found, renewed before they expire, and not asked for more often.
#[tokio::test(flavor = "multi_thread")]
async fn credentials_of_a_container_and_of_an_instance_are_found_and_renewed() {
    let (of_pod, of_node) = ("300000000003", "300000000004");
    // Those of the container are about to expire: they are asked for each time.
    let pod = Metadata::start(of_pod, "2026-01-01T00:00:00Z").await;
    let node = Metadata::start(of_node, "2126-01-01T00:00:00Z").await;
    let token = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(token.path(), format!("{TOKEN}\n")).expect("written");
    let variable = |name: &str, value: String| (name.to_owned(), value);
    let container = BTreeMap::from([
        variable("AWS_CONTAINER_CREDENTIALS_FULL_URI", format!("{}/v1/credentials", pod.address)),
        variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token.path().to_string_lossy().into_owned()),
    ]);
    let instance = BTreeMap::from([variable("AWS_EC2_METADATA_SERVICE_ENDPOINT", node.address.clone())]);
    for (variables, account) in [(container, of_pod), (instance, of_node)] {
        let with = Settings { environment: Some(variables), ..settings(&ministack(account).address) };
        let harness = Harness::start(with).await;
        let role = at("iam", "roles", "default", "chained");
        let spec = json!({"name": "chained", "assumeRolePolicyDocument": TRUST});
        harness.apply(&role, "Role", json!({}), spec).await;
        let synced = harness.synced(&role).await;
        assert_eq!(synced["status"]["ackResourceMetadata"]["ownerAccountID"], account);
        harness.delete(&role).await;
        harness.gone(&role).await;
        let events = harness.call("GET", "/api/v1/events", None).await.expect("events").to_string();
        assert!(!events.contains(SECRET) && !synced.to_string().contains(SECRET));
    }
    assert!(pod.count("GET /v1/credentials") > 3);
    // Several objects ask at once; one of them asks the instance.
    assert_eq!(node.count("GET /latest/meta-data/iam/security-credentials/node-role"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_have_the_names_of_ack_and_of_the_bridge() {
    let account = "300000000005";
    let aws = ministack(account);
    let proxy = Proxy::start(&aws.address).await;
    let harness = Harness::without_controllers(of_account(&proxy.address, account)).await;
    let gateway = Gateway::start(&harness.client).await;
    let address = format!("127.0.0.1:{}", free_port());
    let more = ["--metrics-addr", address.as_str(), "--kinds", "Role,LambdaPermission"];
    let _process = Process::start(&gateway, &proxy.address, account, &more);
    let probes = Simulator::server(format!("http://{address}"));
    harness.installed().await;
    create_function(&aws, "measured").await;
    proxy.inject("CreateRole", Fault::Answer(403, "AccessDenied"), 1);
    let (role, allow) = (at("iam", "roles", "default", "measured"), bridge("lambdapermissions", "measured"));
    let spec = json!({"name": "measured", "assumeRolePolicyDocument": TRUST});
    harness.apply(&role, "Role", json!({}), spec).await;
    let spec = json!({"functionRef": {"functionName": "measured"},
        "permissions": [{"statementId": "topic", "principal": "sns.amazonaws.com", "sourceArn": "arn:aws:sns:us-east-1:1:a"}]});
    harness.apply(&allow, "LambdaPermission", json!({}), spec).await;
    harness.synced(&role).await;
    harness.eventually(&allow, |object| object["status"]["ready"] == true).await;
    let wanted = [
        "ack_outbound_api_requests_total{service=\"iam\",op_type=\"CREATE\",op_id=\"CreateRole\"} 2",
        "ack_outbound_api_requests_error_total{service=\"iam\",op_id=\"CreateRole\",status_code=\"403\"} 1",
        "bridge_aws_calls_total{service=\"lambda\",operation=\"AddPermission\",code=\"OK\"} 1",
        "bridge_reconcile_total{kind=\"LambdaPermission\",outcome=\"ready\"} ",
        "bridge_reconcile_duration_seconds_count{kind=\"LambdaPermission\"} ",
    ];
    harness
        .until("everything is counted", async || {
            let (code, metrics) = probes.send("", "GET", "/metrics", &[], "").await;
            (code == 200 && wanted.iter().all(|line| metrics.contains(line))).then_some(())
        })
        .await;
    for place in [&role, &allow] {
        harness.delete(place).await;
        harness.gone(place).await;
    }
}

/// The controllers as their ServiceAccount, with the rights of `orlop-aws rbac --watch-namespace team` and no others.
#[tokio::test(flavor = "multi_thread")]
async fn rights_of_the_manifest_are_enough_and_end_at_the_watched_namespace() {
    let account = "300000000002";
    let aws = ministack(account);
    let namespaces = vec!["team".to_owned()];
    let settings = Settings { namespaces, ..of_account(&aws.address, account) };
    let mut harness = Harness::without_controllers(settings).await;
    harness.namespace("team", json!({})).await;
    let policy = orlop_aws::network_policy("ack-system", &orlop_aws::Egress::default());
    let mut manifests = orlop_aws::rbac(&harness.settings, "ack-system");
    manifests.push(policy.clone());
    for object in manifests {
        let (kind, name) = (object["kind"].as_str().expect("a kind"), object["metadata"]["name"].as_str());
        let name = name.expect("a name");
        let within = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let path = match kind {
            "Namespace" => format!("/api/v1/namespaces/{name}"),
            "NetworkPolicy" => {
                format!("/apis/networking.k8s.io/v1/namespaces/{within}/networkpolicies/{name}")
            }
            "ServiceAccount" => format!("/api/v1/namespaces/{within}/serviceaccounts/{name}"),
            "RoleBinding" => {
                format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{within}/rolebindings/{name}")
            }
            other => format!("/apis/rbac.authorization.k8s.io/v1/{}s/{name}", other.to_lowercase()),
        };
        let path = format!("{path}?fieldManager=user&force=true");
        let applied = harness.call("PATCH", &path, Some(("application/apply-patch+yaml", &object))).await;
        let applied = applied.expect("applied");
        if kind == "NetworkPolicy" {
            assert_eq!(applied["spec"], policy["spec"], "the server knows every field");
        }
    }
    let groups = ["system:serviceaccounts", "system:serviceaccounts:ack-system"];
    harness.own = Some(harness.server.client_as("system:serviceaccount:ack-system:orlop-aws", &groups));
    harness.launch();
    harness.installed().await;
    // A life in the namespace that they may write in.
    create_zone(&aws, "example.com").await;
    let pages = json!({"domain": "docs.example.com", "pages": {"index.html": "text"}});
    let site = bridge("staticsites", "docs");
    let site = At { path: site.path.replace("/default/", "/team/"), ..site };
    harness.apply(&site, "StaticSite", json!({}), pages).await;
    harness.eventually(&site, |object| object["status"]["ready"] == true).await;
    let events = "/api/v1/namespaces/team/events";
    harness
        .until("events are written", async || {
            let list = harness.call("GET", events, None).await.expect("events");
            list["items"].as_array().is_some_and(|items| !items.is_empty()).then_some(())
        })
        .await;
    harness.delete(&site).await;
    harness.gone(&site).await;
    // Elsewhere they may look and nothing else.
    let own = harness.own.clone().expect("a client");
    let role = at("iam", "roles", "default", "elsewhere");
    harness
        .apply(&role, "Role", json!({}), json!({"name": "elsewhere", "assumeRolePolicyDocument": TRUST}))
        .await;
    let request = |method: &str, body: &str| {
        let request = http::Request::builder().method(method).uri(format!("{}/elsewhere", role.path));
        let request = request.header("content-type", "application/merge-patch+json");
        request.body(body.as_bytes().to_vec()).expect("a request")
    };
    own.request::<serde_json::Value>(request("GET", "")).await.expect("read");
    let patched = own.request::<serde_json::Value>(request("PATCH", "{}")).await;
    assert!(matches!(&patched, Err(kube::Error::Api(status)) if status.code == 403), "{patched:?}");
}

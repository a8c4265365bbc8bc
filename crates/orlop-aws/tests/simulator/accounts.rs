//! Roles, accounts, namespaces and replicas.

use std::time::Duration;

use orlop_aws::{NAME, Observer, Settings};
use orlop_controllers::runtime::{LeaderElection, Manager};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::{
    harness::{At, Harness, at, condition, has, settings},
    kinds::TRUST,
    simulators::moto,
};

const MAPS: &str = "/api/v1/namespaces/ack-system/configmaps";

fn role(name: &str) -> Value {
    json!({"name": name, "assumeRolePolicyDocument": TRUST})
}

async fn config_map(harness: &Harness, data: Value) {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ack-role-account-map"}, "data": data});
    let path = format!("{MAPS}/ack-role-account-map?fieldManager=user&force=true");
    harness.call("PATCH", &path, Some(("application/apply-patch+yaml", &map))).await.expect("a map");
}

#[tokio::test(flavor = "multi_thread")]
async fn role_map_is_waited_for_and_chooses_the_account() {
    let harness = Harness::start(settings(&moto().address)).await;
    harness.namespace("ack-system", json!({})).await;
    harness.namespace("team", json!({"services.k8s.aws/owner-account-id": "222222222222"})).await;
    let place = at("iam", "roles", "team", "elsewhere");
    harness.apply(&place, "Role", json!({}), role("elsewhere")).await;
    let waits = async |cause: &str| {
        let reason = format!(
            "retrieving role ARN for account/team ID \"222222222222\" from \"ack-role-account-map\" configmap: {cause}"
        );
        let waiting = harness
            .eventually(&place, |object| {
                condition(object, "ACK.ResourceSynced").is_some_and(|condition| condition["reason"] == reason)
            })
            .await;
        let message = &condition(&waiting, "ACK.ResourceSynced").expect("a condition")["message"];
        assert_eq!(message, "IAM Role is not available");
    };
    waits("CARM configmap not found").await;
    config_map(&harness, json!({"other": "x"})).await;
    waits("key not found in CARM configmap").await;
    config_map(&harness, json!({"222222222222": ""})).await;
    waits("role value is empty in CARM configmap").await;
    config_map(&harness, json!({"222222222222": "arn:aws:iam::222222222222:role/ack"})).await;
    let synced = harness.synced(&place).await;
    assert_eq!(synced["status"]["ackResourceMetadata"]["ownerAccountID"], "222222222222");
    assert_eq!(synced["status"]["ackResourceMetadata"]["arn"], "arn:aws:iam::222222222222:role/elsewhere");
    harness.delete(&place).await;
    harness.gone(&place).await;
}

async fn selector(harness: &Harness, name: &str, arn: &str) {
    let path = "/apis/services.k8s.aws/v1alpha1/iamroleselectors".to_owned();
    let spec = json!({"arn": arn, "namespaceSelector": {"names": ["default"]}, "resourceTypeSelector": [{"kind": "Role"}]});
    harness.apply(&At { path, name: name.to_owned() }, "IAMRoleSelector", json!({}), spec).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn role_selector_chooses_and_two_that_match_are_terminal() {
    let settings = Settings { carm: false, role_selectors: true, ..settings(&moto().address) };
    let harness = Harness::start(settings).await;
    let arn = "arn:aws:iam::333333333333:role/ack";
    selector(&harness, "one", arn).await;
    let place = at("iam", "roles", "default", "selected");
    harness.apply(&place, "Role", json!({}), role("selected")).await;
    let synced = harness.synced(&place).await;
    let selected = condition(&synced, "ACK.IAMRoleSelected").expect("a condition");
    let said = selected["message"].as_str().expect("a message");
    assert!(
        selected["reason"] == "Selected" && said.starts_with(&format!("roleARN: {arn}, selectorName: one")),
        "{said}"
    );
    assert_eq!(synced["status"]["ackResourceMetadata"]["ownerAccountID"], "333333333333");
    selector(&harness, "two", arn).await;
    let refused = harness.eventually(&place, |object| has(object, "ACK.Terminal", "True")).await;
    let said = &condition(&refused, "ACK.Terminal").expect("a condition")["message"];
    assert_eq!(said, "multiple (2) matching IAMRoleSelectors found");
    // One of them goes; the object wakes by itself.
    harness
        .call("DELETE", "/apis/services.k8s.aws/v1alpha1/iamroleselectors/two", None)
        .await
        .expect("deleted");
    harness.synced(&place).await;
    harness.delete(&place).await;
    harness.gone(&place).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reference_to_another_namespace_is_advised_against_or_refused() {
    let mut harness = Harness::start(settings(&moto().address)).await;
    harness.namespace("far", json!({})).await;
    let policy = at("iam", "policies", "far", "far");
    let document =
        r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:Get","Resource":"*"}]}"#;
    harness.apply(&policy, "Policy", json!({}), json!({"name": "far", "policyDocument": document})).await;
    let place = at("iam", "roles", "default", "crossing");
    let mut spec = role("crossing");
    spec["policyRefs"] = json!([{"from": {"name": "far", "namespace": "far"}}]);
    harness.apply(&place, "Role", json!({}), spec).await;
    let synced = harness.synced(&place).await;
    let advisory = condition(&synced, "ACK.Advisory").expect("a condition");
    assert_eq!(advisory["reason"], "CrossNamespaceOptInRequired");
    harness.settings.cross_namespace = false;
    harness.launch();
    let refused = harness.eventually(&place, |object| has(object, "ACK.ReferencesResolved", "False")).await;
    let said = condition(&refused, "ACK.ReferencesResolved").expect("a condition")["reason"].to_string();
    assert!(said.contains("cross-namespace resource reference is not allowed"), "{said}");
    harness.settings.cross_namespace = true;
    harness.launch();
    harness.synced(&place).await;
    for place in [&place, &policy] {
        harness.delete(place).await;
        harness.gone(place).await;
    }
}

fn replica(harness: &Harness, identity: &str) -> (JoinHandle<()>, Observer) {
    let election = LeaderElection {
        // Longer than a busy machine keeps the first from renewing.
        lease_duration: Duration::from_secs(10),
        renew_deadline: Duration::from_secs(8),
        retry_period: Duration::from_millis(200),
        ..LeaderElection::new(identity)
    };
    let client = orlop_test::for_controllers(harness.server.client());
    let mut manager = Manager::new(client).with_leader_election(Some(election));
    let (settings, observer) = (harness.settings.clone(), Observer::default());
    let observed = observer.clone();
    manager.register(NAME, move |context| orlop_aws::run(context, settings.clone(), observer.clone()));
    (tokio::spawn(manager.run(std::future::pending())), observed)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_replicas_leads_and_the_other_takes_over() {
    let mut harness = Harness::start(settings(&moto().address)).await;
    harness.kill();
    let (first, first_seen) = replica(&harness, "first");
    harness.until("the first leads", async || first_seen.is_ready().then_some(())).await;
    let (second, second_seen) = replica(&harness, "second");
    let place = at("iam", "roles", "default", "replicated");
    harness.apply(&place, "Role", json!({}), role("replicated")).await;
    harness.synced(&place).await;
    assert!(second_seen.calls().is_empty(), "a replica that does not lead calls AWS");
    first.abort();
    harness.patch(&place, json!({"spec": {"description": "after"}})).await;
    harness
        .until("the second takes over", async || {
            let (_, found) =
                moto().query("iam", "Action=GetRole&RoleName=replicated&Version=2010-05-08").await;
            found.contains("after").then_some(())
        })
        .await;
    harness.delete(&place).await;
    harness.gone(&place).await;
    second.abort();
}

//! Table: its states, and what of it changes without an index.

use serde_json::{Value, json};

use crate::{
    harness::{Harness, at, condition, has, of_account},
    proxy::{Fault, Proxy},
    simulators::{Simulator, ministack},
};

struct Ground {
    aws: Simulator,
    proxy: Proxy,
    harness: Harness,
}

impl Ground {
    async fn start(account: &str) -> Self {
        let aws = ministack(account);
        let proxy = Proxy::start(&aws.address).await;
        let harness = Harness::start(of_account(&proxy.address, account)).await;
        Self { aws, proxy, harness }
    }

    /// Makes DynamoDB show another state than the table has: the simulator knows one only.
    fn show(&self, state: &'static str) {
        self.proxy.inject("DynamoDB_20120810.DescribeTable", Fault::Replace("\"ACTIVE\"", state), usize::MAX);
    }

    async fn call(&self, operation: &str, table: &str) -> (u16, Value) {
        let body = json!({"TableName": table});
        self.aws.json("dynamodb", &format!("DynamoDB_20120810.{operation}"), body).await
    }
}

fn spec(name: &str, more: Value) -> Value {
    let mut spec = json!({"tableName": name, "billingMode": "PAY_PER_REQUEST",
        "attributeDefinitions": [{"attributeName": "id", "attributeType": "S"}],
        "keySchema": [{"attributeName": "id", "keyType": "HASH"}]});
    for (key, value) in more.as_object().expect("fields") {
        spec[key] = value.clone();
    }
    spec
}

/// A table that AWS was still deleting counted as gone; its object, applied again, met it and was refused for ever.
#[tokio::test(flavor = "multi_thread")]
async fn table_is_waited_for_while_aws_makes_changes_and_deletes_it() {
    let ground = Ground::start("600000000039").await;
    let (harness, proxy) = (&ground.harness, &ground.proxy);
    let place = at("dynamodb", "tables", "default", "slow");
    let says = async |text: &str| {
        let waiting = harness
            .eventually(&place, |object| {
                let synced = condition(object, "ACK.ResourceSynced");
                synced.is_some_and(|synced| synced["status"] == "False" && synced["message"] == text)
            })
            .await;
        assert!(
            condition(&waiting, "ACK.Terminal").is_none() && !has(&waiting, "Ready", "True"),
            "{waiting:#}"
        );
        waiting
    };
    ground.show("\"CREATING\"");
    harness.apply(&place, "Table", json!({}), spec("slow", json!({}))).await;
    says("table is currently being created").await;
    proxy.clear();
    harness.synced(&place).await;

    ground.show("\"UPDATING\"");
    let writes = proxy.writes().len();
    let stream = json!({"streamEnabled": true, "streamViewType": "KEYS_ONLY"});
    harness.apply(&place, "Table", json!({}), spec("slow", json!({"streamSpecification": stream}))).await;
    says("table in 'UPDATING' state, cannot be modified or deleted").await;
    assert_eq!(proxy.writes().len(), writes, "nothing is changed meanwhile: {:?}", proxy.writes());
    proxy.clear();
    harness.synced(&place).await;
    let (_, found) = ground.call("DescribeTable", "slow").await;
    assert_eq!(found["Table"]["StreamSpecification"]["StreamViewType"], "KEYS_ONLY");

    // AWS takes the deletion and has not finished.
    let delete = "DynamoDB_20120810.DeleteTable";
    proxy.inject(delete, Fault::Pretend("{}"), usize::MAX);
    harness.delete(&place).await;
    let asked = async || proxy.made().iter().any(|call| call.contains(delete)).then_some(());
    harness.until("AWS is asked to delete it", asked).await;
    ground.show("\"DELETING\"");
    says("the resource is being deleted").await;
    let calls = proxy.calls();
    harness.until("several looks", async || (proxy.calls() > calls + 5).then_some(())).await;
    let held = harness.get(&place).await.expect("the object");
    assert!(held["metadata"]["finalizers"].is_array(), "{held:#}");
    proxy.clear();
    harness.gone(&place).await;
    assert_eq!(ground.call("DescribeTable", "slow").await.0, 400);
    harness.apply(&place, "Table", json!({}), spec("slow", json!({}))).await;
    let again = harness.synced(&place).await;
    assert!(condition(&again, "ACK.Terminal").is_none(), "{again:#}");
    harness.delete(&place).await;
    harness.gone(&place).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn billing_streams_expiry_and_backups_of_a_table_are_changed_and_taken_back() {
    let ground = Ground::start("600000000040").await;
    let harness = &ground.harness;
    let place = at("dynamodb", "tables", "default", "turns");
    harness.apply(&place, "Table", json!({}), spec("turns", json!({}))).await;
    harness.synced(&place).await;
    let shows = async || {
        let (_, table) = ground.call("DescribeTable", "turns").await;
        let (_, expiry) = ground.call("DescribeTimeToLive", "turns").await;
        let (_, backups) = ground.call("DescribeContinuousBackups", "turns").await;
        let table = &table["Table"];
        let backups = &backups["ContinuousBackupsDescription"]["PointInTimeRecoveryDescription"];
        json!([
            table["BillingModeSummary"]["BillingMode"] == "PROVISIONED",
            table["ProvisionedThroughput"]["ReadCapacityUnits"],
            table["StreamSpecification"]["StreamEnabled"] == true,
            expiry["TimeToLiveDescription"]["TimeToLiveStatus"] == "ENABLED",
            backups["PointInTimeRecoveryStatus"] == "ENABLED",
            table["DeletionProtectionEnabled"] == true
        ])
    };
    let becomes = async |wanted: Value| {
        harness.until(&wanted.to_string(), async || (shows().await == wanted).then_some(())).await;
        harness.synced(&place).await;
    };
    let all = json!({"billingMode": "PROVISIONED", "provisionedThroughput": {"readCapacityUnits": 3, "writeCapacityUnits": 2},
        "streamSpecification": {"streamEnabled": true, "streamViewType": "NEW_IMAGE"}, "deletionProtectionEnabled": true,
        "timeToLive": {"attributeName": "expires", "enabled": true}, "continuousBackups": {"pointInTimeRecoveryEnabled": true}});
    harness.apply(&place, "Table", json!({}), spec("turns", all)).await;
    becomes(json!([true, 3, true, true, true, true])).await;
    // Settled: nothing differs for ever.
    let quiet = async || ground.proxy.is_quiet().then_some(());
    harness.until("all is quiet", quiet).await;
    let writes = ground.proxy.writes();
    harness.patch(&place, json!({"metadata": {"annotations": {"look": "again"}}})).await;
    let calls = ground.proxy.calls();
    let looked = async || (ground.proxy.calls() > calls && ground.proxy.is_quiet()).then_some(());
    harness.until("it was looked at", looked).await;
    assert_eq!(ground.proxy.writes(), writes);

    harness.apply(&place, "Table", json!({}), spec("turns", json!({}))).await;
    becomes(json!([false, 0, false, false, false, false])).await;
    harness.delete(&place).await;
    harness.gone(&place).await;
    harness.assert_allowed();
}

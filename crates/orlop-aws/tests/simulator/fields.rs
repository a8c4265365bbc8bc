//! Fields of ACK's schemas beyond the lives of their kinds: set, changed, and taken out of the spec again.

use serde_json::{Value, json};

use crate::{
    harness::{At, Harness, at, condition, has, of_account},
    kinds::ZIP,
    proxy::Proxy,
    simulators::{Simulator, ministack},
    stage::create_zone,
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

    async fn remove(&self, place: &At) {
        self.harness.delete(place).await;
        self.harness.gone(place).await;
    }

    /// Waits until a call with this text was made, and the object is synced.
    async fn called(&self, place: &At, call: &str) {
        let made = async || self.proxy.made().iter().any(|made| made.contains(call)).then_some(());
        self.harness.until(call, made).await;
        self.harness.synced(place).await;
    }
}

/// Makes an object of another controller's kind, with its CustomResourceDefinition.
async fn foreign(harness: &Harness, service: &str, kind: &str, name: &str, status: Value) {
    let (group, plural) = (format!("{service}.services.k8s.aws"), format!("{}s", kind.to_lowercase()));
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")}, "spec": {"group": group, "scope": "Namespaced",
        "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
        "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": any}}]}});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    harness.call("POST", path, Some(("application/json", &definition))).await.expect("a definition");
    let mut status = status;
    status["conditions"] = json!([{"type": "ACK.ResourceSynced", "status": "True"}]);
    let object = json!({"apiVersion": format!("{group}/v1alpha1"), "kind": kind, "metadata": {"name": name}, "status": status});
    let path = at(service, &plural, "default", name).path;
    harness
        .until("the kind is served", async || {
            harness.call("POST", &path, Some(("application/json", &object))).await.ok()
        })
        .await;
}

/// References to kinds of other controllers were accepted and ignored: a function without its network or key.
#[tokio::test(flavor = "multi_thread")]
async fn references_to_kinds_of_other_controllers_are_resolved() {
    let account = "700000000001";
    let ground = Ground::start(account).await;
    let harness = &ground.harness;
    let function = at("lambda", "functions", "default", "inside");
    let from = |name: &str| json!({"from": {"name": name}});
    let spec = json!({"name": "inside", "code": {"zipFile": ZIP}, "runtime": "python3.12", "handler": "a.b",
        "role": format!("arn:aws:iam::{account}:role/any"), "kmsKeyRef": from("key"),
        "vpcConfig": {"subnetRefs": [from("net")], "securityGroupRefs": [from("wall")]}});
    harness.apply(&function, "Function", json!({}), spec).await;
    let waiting =
        harness.eventually(&function, |object| has(object, "ACK.ReferencesResolved", "Unknown")).await;
    assert!(waiting["metadata"]["finalizers"].is_null(), "nothing is made without them");
    let key = format!("arn:aws:kms:us-east-1:{account}:key/one");
    foreign(harness, "kms", "Key", "key", json!({"ackResourceMetadata": {"arn": key}})).await;
    foreign(harness, "ec2", "Subnet", "net", json!({"subnetID": "subnet-1"})).await;
    foreign(harness, "ec2", "SecurityGroup", "wall", json!({"id": "sg-1"})).await;
    harness.synced(&function).await;
    let (_, found) = ground.aws.rest("lambda", "GET", "/2015-03-31/functions/inside", None).await;
    let configuration = &found["Configuration"];
    assert_eq!(configuration["KMSKeyArn"], json!(key));
    assert_eq!(configuration["VpcConfig"]["SubnetIds"], json!(["subnet-1"]));
    assert_eq!(configuration["VpcConfig"]["SecurityGroupIds"], json!(["sg-1"]));
    // Settings for another function than its own would be ignored.
    harness.patch(&function, json!({"spec": {"functionEventInvokeConfig": {"functionName": "other"}}})).await;
    let refused = harness.eventually(&function, |object| has(object, "ACK.Terminal", "True")).await;
    let said = condition(&refused, "ACK.Terminal").expect("a condition")["message"].to_string();
    assert!(said.contains("functionEventInvokeConfig.functionName is other"), "{said}");
    harness.patch(&function, json!({"spec": {"functionEventInvokeConfig": null}})).await;
    harness.synced(&function).await;
    ground.remove(&function).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn table_replicas_come_and_go_one_at_a_time_and_before_the_table() {
    let ground = Ground::start("700000000002").await;
    let harness = &ground.harness;
    let table = at("dynamodb", "tables", "default", "global");
    let replica = |region: &str| json!({"regionName": region});
    let spec = |replicas: Value| {
        json!({"tableName": "global", "billingMode": "PAY_PER_REQUEST", "tableReplicas": replicas,
            "attributeDefinitions": [{"attributeName": "id", "attributeType": "S"}],
            "keySchema": [{"attributeName": "id", "keyType": "HASH"}]})
    };
    harness.apply(&table, "Table", json!({}), spec(json!([replica("eu-west-1")]))).await;
    let refused = harness.eventually(&table, |object| has(object, "ACK.Terminal", "True")).await;
    let said = condition(&refused, "ACK.Terminal").expect("a condition")["message"].to_string();
    assert!(said.contains("StreamViewType set to NEW_AND_OLD_IMAGES"), "{said}");
    let stream = json!({"streamEnabled": true, "streamViewType": "NEW_AND_OLD_IMAGES"});
    let with = |replicas: Value| {
        let mut spec = spec(replicas);
        spec["streamSpecification"] = stream.clone();
        spec
    };
    let regions = async || {
        let body = json!({"TableName": "global"});
        let (_, found) = ground.aws.json("dynamodb", "DynamoDB_20120810.DescribeTable", body).await;
        let all = found["Table"]["Replicas"].as_array().cloned().unwrap_or_default();
        let mut names: Vec<String> =
            all.iter().filter_map(|replica| replica["RegionName"].as_str().map(str::to_owned)).collect();
        names.retain(|name| name != "us-east-1");
        names.sort();
        names
    };
    harness
        .apply(&table, "Table", json!({}), with(json!([replica("eu-west-1"), replica("us-west-2")])))
        .await;
    harness
        .until("two replicas", async || (regions().await == ["eu-west-1", "us-west-2"]).then_some(()))
        .await;
    let synced = harness.synced(&table).await;
    assert!(synced["status"]["replicas"].as_array().is_some_and(|all| !all.is_empty()), "{synced:#}");
    harness.apply(&table, "Table", json!({}), with(json!([replica("us-west-2")]))).await;
    harness.until("one replica", async || (regions().await == ["us-west-2"]).then_some(())).await;
    harness.synced(&table).await;
    ground.remove(&table).await;
    let updates = ground.proxy.made().iter().filter(|call| call.contains("UpdateTable")).count();
    assert!(
        updates >= 4,
        "each replica has a call of its own, and the last goes before the table: {updates}"
    );
}

/// Lists of configurations, attributes for access control and the ACL were refused, or written at creation alone.
#[tokio::test(flavor = "multi_thread")]
async fn bucket_lists_and_acl_are_set_changed_and_removed() {
    let ground = Ground::start("700000000003").await;
    let harness = &ground.harness;
    let place = at("s3", "buckets", "default", "lists");
    let metrics = |ids: &[&str]| -> Value { ids.iter().map(|id| json!({"id": id})).collect() };
    let spec = json!({"name": "lists-bucket", "metrics": metrics(&["a", "b"]), "abac": {"status": "Enabled"},
        "publicAccessBlock": {"blockPublicACLs": false}, "objectOwnership": "ObjectWriter", "acl": "private"});
    harness.apply(&place, "Bucket", json!({}), spec).await;
    harness.synced(&place).await;
    let writes = |part: &str| {
        let all = ground.proxy.writes();
        all.into_iter().filter(|call| call.contains(part)).collect::<Vec<_>>()
    };
    assert_eq!(writes("metrics").len(), 2);
    harness.patch(&place, json!({"spec": {"metrics": metrics(&["b", "c"]), "acl": "public-read"}})).await;
    ground.called(&place, "PUT /lists-bucket?metrics=&id=c").await;
    ground.called(&place, "DELETE /lists-bucket?metrics=&id=a").await;
    let acl = async || ground.aws.send("s3", "GET", "/lists-bucket?acl", &[], "").await.1;
    harness.until("the ACL follows", async || acl().await.contains("AllUsers").then_some(())).await;
    // Drift of the ACL is seen; removed from the spec it is private again.
    harness.patch(&place, json!({"spec": {"acl": null, "metrics": null, "abac": null}})).await;
    harness.until("the ACL is private", async || (!acl().await.contains("AllUsers")).then_some(())).await;
    ground.called(&place, "DELETE /lists-bucket?metrics=&id=c").await;
    assert_eq!(writes("?abac").len(), 2, "set, and turned off again");
    // Something taken out of a part that reads as wanted.
    let site = |error: Value| json!({"spec": {"website": {"indexDocument": {"suffix": "i.html"}, "errorDocument": error}}});
    harness.patch(&place, site(json!({"key": "e.html"}))).await;
    let website = async || ground.aws.send("s3", "GET", "/lists-bucket?website", &[], "").await.1;
    harness.until("the error page", async || website().await.contains("e.html").then_some(())).await;
    harness.patch(&place, site(Value::Null)).await;
    harness.until("no error page", async || (!website().await.contains("e.html")).then_some(())).await;
    harness.synced(&place).await;
    // Directory buckets are another service's.
    let directory = at("s3", "buckets", "default", "directory");
    let spec = json!({"name": "dir--use1-az4--x-s3", "createBucketConfiguration": {"location": {"name": "use1-az4", "type": "AvailabilityZone"}}});
    harness.apply(&directory, "Bucket", json!({}), spec).await;
    let refused = harness.eventually(&directory, |object| has(object, "ACK.Terminal", "True")).await;
    let said = &condition(&refused, "ACK.Terminal").expect("a condition")["message"];
    assert_eq!(said, "directory buckets are not managed by this controller");
    for place in [&directory, &place] {
        ground.remove(place).await;
    }
}

/// Fields that left the spec stayed in AWS: CORS of an API, logs and variables of a stage, a record's health check.
#[tokio::test(flavor = "multi_thread")]
async fn fields_that_leave_the_spec_leave_aws() {
    let account = "700000000004";
    let ground = Ground::start(account).await;
    let (harness, aws) = (&ground.harness, &ground.aws);
    let (api, stage) =
        (at("apigatewayv2", "apis", "default", "less"), at("apigatewayv2", "stages", "default", "less"));
    let cors = json!({"allowOrigins": ["https://example.org"], "maxAge": 5});
    let spec = json!({"name": "less", "protocolType": "HTTP", "corsConfiguration": cors});
    harness.apply(&api, "API", json!({}), spec).await;
    let logs = json!({"destinationARN": format!("arn:aws:logs:us-east-1:{account}:log-group:x"), "format": "$context.requestId"});
    let spec = json!({"apiRef": {"from": {"name": "less"}}, "stageName": "less", "autoDeploy": true,
        "accessLogSettings": logs, "stageVariables": {"a": "1", "b": "2"}});
    harness.apply(&stage, "Stage", json!({}), spec).await;
    let id = harness.synced(&api).await["status"]["apiID"].as_str().expect("an id").to_owned();
    harness.synced(&stage).await;
    let read =
        async |path: &str| aws.rest("apigateway", "GET", &format!("/v2/apis/{id}{path}"), None).await.1;
    assert_eq!(read("").await["corsConfiguration"]["maxAge"], 5);
    assert!(read("/stages/less").await["accessLogSettings"]["destinationArn"].is_string());
    harness.patch(&api, json!({"spec": {"corsConfiguration": null}})).await;
    harness.patch(&stage, json!({"spec": {"accessLogSettings": null, "stageVariables": {"b": null}}})).await;
    harness
        .until("they are gone", async || {
            let (api, stage) = (read("").await, read("/stages/less").await);
            let gone = api["corsConfiguration"]["maxAge"].is_null()
                && stage["accessLogSettings"]["destinationArn"].is_null()
                && stage["stageVariables"]["b"].as_str().is_none_or(str::is_empty);
            gone.then_some(())
        })
        .await;
    for place in [&api, &stage] {
        harness.synced(place).await;
    }
    let zone = create_zone(aws, "example.com").await;
    let record = at("route53", "recordsets", "default", "less");
    let spec = json!({"hostedZoneID": zone, "name": "less", "recordType": "A", "ttl": 60, "setIdentifier": "one", "weight": 1,
        "healthCheckID": "11111111-1111-1111-1111-111111111111", "resourceRecords": [{"value": "192.0.2.1"}]});
    harness.apply(&record, "RecordSet", json!({}), spec).await;
    harness.synced(&record).await;
    let records =
        async || aws.send("route53", "GET", &format!("/2013-04-01/hostedzone/{zone}/rrset"), &[], "").await.1;
    assert!(records().await.contains("HealthCheckId"));
    harness.patch(&record, json!({"spec": {"healthCheckID": null}})).await;
    harness
        .until("the health check is gone", async || {
            (!records().await.contains("HealthCheckId")).then_some(())
        })
        .await;
    harness.synced(&record).await;
    for place in [&record, &stage, &api] {
        ground.remove(place).await;
    }
}

/// Kinds that are not named belong to others: nothing is written to them, and references to them are followed.
#[tokio::test(flavor = "multi_thread")]
async fn kinds_that_are_not_named_are_left_to_other_controllers() {
    let account = "700000000005";
    let aws = ministack(account);
    let proxy = Proxy::start(&aws.address).await;
    let mut with = of_account(&proxy.address, account);
    with.kinds = vec!["Function".to_owned()];
    let harness = Harness::start(with).await;
    // The public controller brings its own definition.
    let arn = format!("arn:aws:iam::{account}:role/theirs");
    foreign(&harness, "iam", "Role", "theirs", json!({"ackResourceMetadata": {"arn": arn}})).await;
    let theirs = at("iam", "roles", "default", "theirs");
    let before = harness.get(&theirs).await.expect("their object");
    let function = at("lambda", "functions", "default", "ours");
    let spec = json!({"name": "ours", "code": {"zipFile": ZIP}, "runtime": "python3.12", "handler": "a.b",
        "roleRef": {"from": {"name": "theirs"}}});
    harness.apply(&function, "Function", json!({}), spec).await;
    harness.synced(&function).await;
    let (_, found) = aws.rest("lambda", "GET", "/2015-03-31/functions/ours", None).await;
    assert_eq!(found["Configuration"]["Role"], json!(arn));
    assert_eq!(harness.get(&theirs).await.expect("their object"), before, "not even a finalizer");
    assert!(!proxy.made().iter().any(|call| call.contains("Role")), "{:?}", proxy.made());
    let definitions =
        harness.call("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", None).await;
    let definitions = definitions.expect("definitions").to_string();
    assert!(
        !definitions.contains("buckets.s3.services.k8s.aws"),
        "only the kinds that are named are installed"
    );
    harness.delete(&function).await;
    harness.gone(&function).await;
    harness.delete(&theirs).await;
    harness.gone(&theirs).await;
}

/// A manifest with more fields than a schema has is taken, without them.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_fields_are_pruned_and_a_stage_without_auto_deploy_is_updated() {
    let ground = Ground::start("700000000006").await;
    let (harness, aws) = (&ground.harness, &ground.aws);
    let (api, stage) =
        (at("apigatewayv2", "apis", "default", "plain"), at("apigatewayv2", "stages", "default", "plain"));
    let object = json!({"apiVersion": "apigatewayv2.services.k8s.aws/v1alpha1", "kind": "API", "metadata": {"name": "plain"},
        "spec": {"name": "plain", "protocolType": "HTTP", "ofALaterVersion": {"a": 1}}});
    let created =
        harness.call("POST", &api.path, Some(("application/json", &object))).await.expect("created");
    assert!(created["spec"].get("ofALaterVersion").is_none());
    let spec = json!({"apiRef": {"from": {"name": "plain"}}, "stageName": "plain"});
    harness.apply(&stage, "Stage", json!({}), spec).await;
    let synced = harness.synced(&stage).await;
    let id = harness.synced(&api).await["status"]["apiID"].as_str().expect("an id").to_owned();
    let arn = format!("arn:aws:apigateway:us-east-1::/apis/{id}/stages/plain");
    assert_eq!(synced["status"]["ackResourceMetadata"]["arn"], json!(arn));
    harness.patch(&stage, json!({"spec": {"description": "changed"}})).await;
    harness
        .until("the description follows", async || {
            let (_, found) =
                aws.rest("apigateway", "GET", &format!("/v2/apis/{id}/stages/plain"), None).await;
            (found["description"] == "changed").then_some(())
        })
        .await;
    let now = harness.synced(&stage).await;
    assert!(now["spec"].get("deploymentID").is_none(), "what AWS deploys is not written into the spec");
    for place in [&stage, &api] {
        ground.remove(place).await;
    }
}

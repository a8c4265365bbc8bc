//! The reconciler's rules, each on the kind that shows it best.

use std::time::Duration;

use serde_json::json;

use crate::{
    harness::{Harness, at, condition, has, settings},
    kinds::TRUST,
    proxy::{Fault, Proxy},
    simulators::moto,
};

#[tokio::test(flavor = "multi_thread")]
async fn foreign_resource_is_terminal_until_it_is_adopted() {
    let aws = moto();
    let harness = Harness::start(settings(&aws.address)).await;
    let table = json!({"TableName": "foreign", "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
        "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}], "BillingMode": "PAY_PER_REQUEST"});
    aws.json("dynamodb", "DynamoDB_20120810.CreateTable", table).await;
    let place = at("dynamodb", "tables", "default", "foreign");
    let spec = json!({"tableName": "foreign", "billingMode": "PAY_PER_REQUEST",
        "attributeDefinitions": [{"attributeName": "id", "attributeType": "S"}],
        "keySchema": [{"attributeName": "id", "keyType": "HASH"}]});
    harness.apply(&place, "Table", json!({}), spec.clone()).await;
    let refused = harness.eventually(&place, |object| has(object, "ACK.Terminal", "True")).await;
    assert_eq!(condition(&refused, "ACK.Terminal").expect("terminal")["message"], "Resource already exists");
    assert!(has(&refused, "Ready", "False") && refused["metadata"]["finalizers"].is_null());

    // An annotation is enough: no change of the spec is needed.
    harness
        .apply(&place, "Table", json!({"services.k8s.aws/adoption-policy": "adopt-or-create"}), spec)
        .await;
    let adopted = harness.synced(&place).await;
    assert_eq!(adopted["metadata"]["annotations"]["services.k8s.aws/adopted"], "true");
    assert!(condition(&adopted, "ACK.Terminal").is_none());
    harness.delete(&place).await;
    harness.gone(&place).await;
    let (status, _) =
        aws.json("dynamodb", "DynamoDB_20120810.DescribeTable", json!({"TableName": "foreign"})).await;
    assert_eq!(status, 400, "an adopted resource is deleted with its object");
}

#[tokio::test(flavor = "multi_thread")]
async fn adopt_fills_the_spec_and_bad_annotations_are_terminal() {
    let aws = moto();
    let harness = Harness::start(settings(&aws.address)).await;
    aws.query("iam", &format!("Action=CreateRole&RoleName=adoptee&Description=mine&AssumeRolePolicyDocument={}&Version=2010-05-08",
        TRUST.replace('"', "%22").replace('{', "%7B").replace('}', "%7D"))).await;
    let role = at("iam", "roles", "default", "adoptee");
    let policy = |policy: &str, fields: &str| {
        json!({"services.k8s.aws/adoption-policy": policy,
        "services.k8s.aws/adoption-fields": fields, "services.k8s.aws/deletion-policy": "retain"})
    };
    let message = async |annotations| {
        let object = json!({"apiVersion": "iam.services.k8s.aws/v1alpha1", "kind": "Role",
            "metadata": {"name": "adoptee", "annotations": annotations}});
        let path = format!("{}/adoptee?fieldManager=user&force=true", role.path);
        harness.call("PATCH", &path, Some(("application/apply-patch+yaml", &object))).await.expect("applied");
    };
    message(policy("steal", "{}")).await;
    let unknown = harness.eventually(&role, |object| has(object, "ACK.Terminal", "True")).await;
    assert_eq!(
        condition(&unknown, "ACK.Terminal").expect("terminal")["message"],
        "unrecognized adoption policy steal. Supported policies are \"adopt\" and \"adopt-or-create\""
    );
    message(policy("adopt", "{}")).await;
    harness
        .eventually(&role, |object| {
            condition(object, "ACK.Terminal").is_some_and(|terminal| {
                terminal["message"] == "Error populating adoption fields: required field missing: name"
            })
        })
        .await;
    message(policy("adopt", r#"{"name": "adoptee"}"#)).await;
    let adopted = harness.synced(&role).await;
    assert_eq!(adopted["spec"]["name"], "adoptee");
    assert_eq!(adopted["spec"]["description"], "mine");
    assert!(adopted["spec"].get("tags").is_none(), "no tag of the system in the spec");
    // `retain` keeps what AWS has.
    harness.delete(&role).await;
    harness.gone(&role).await;
    let (status, _) = aws.query("iam", "Action=GetRole&RoleName=adoptee&Version=2010-05-08").await;
    assert_eq!(status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_object_never_writes_to_aws() {
    let proxy = Proxy::start(&moto().address).await;
    let harness = Harness::start(settings(&proxy.address)).await;
    let role = at("iam", "roles", "default", "seen");
    let annotations = json!({"services.k8s.aws/read-only": "true"});
    harness
        .apply(&role, "Role", annotations, json!({"name": "seen", "assumeRolePolicyDocument": TRUST}))
        .await;
    let missing = harness.eventually(&role, |object| has(object, "ACK.Recoverable", "True")).await;
    assert_eq!(
        condition(&missing, "ACK.Recoverable").expect("recoverable")["message"],
        "read-only resource not found"
    );
    let trust = TRUST.replace('"', "%22").replace('{', "%7B").replace('}', "%7D");
    moto()
        .query(
            "iam",
            &format!("Action=CreateRole&RoleName=seen&AssumeRolePolicyDocument={trust}&Version=2010-05-08"),
        )
        .await;
    harness.synced(&role).await;
    harness.delete(&role).await;
    harness.gone(&role).await;
    assert_eq!(proxy.writes(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn reference_waits_for_its_target_and_both_or_neither_is_refused() {
    let aws = moto();
    let harness = Harness::start(settings(&aws.address)).await;
    let function = at("lambda", "functions", "default", "refers");
    let code = json!({"zipFile": "UEsFBgAAAAAAAAAAAAAAAAAAAAAAAA=="});
    let spec = |more: serde_json::Value| {
        let mut spec = json!({"name": "refers", "code": code, "runtime": "python3.12", "handler": "a.b"});
        for (key, value) in more.as_object().expect("fields") {
            spec[key] = value.clone();
        }
        spec
    };
    harness.apply(&function, "Function", json!({}), spec(json!({}))).await;
    harness
        .eventually(&function, |object| {
            condition(object, "ACK.ReferencesResolved").is_some_and(|condition| {
                condition["reason"] == "resource reference wrapper or ID required: Role,RoleRef"
            })
        })
        .await;
    harness
        .apply(&function, "Function", json!({}), spec(json!({"roleRef": {"from": {"name": "later"}}})))
        .await;
    let waiting = harness
        .eventually(&function, |object| {
            condition(object, "Ready").is_some_and(|ready| {
                ready["reason"] == "ReferenceNotReady"
                    && ready["message"].as_str().is_some_and(|text| text.contains("does not exist"))
            })
        })
        .await;
    assert!(
        has(&waiting, "ACK.ReferencesResolved", "Unknown") && waiting["metadata"]["finalizers"].is_null()
    );
    let role = at("iam", "roles", "default", "later");
    harness
        .apply(&role, "Role", json!({}), json!({"name": "later-role", "assumeRolePolicyDocument": TRUST}))
        .await;
    let synced = harness.synced(&function).await;
    assert!(has(&synced, "ACK.ReferencesResolved", "True"));
    assert!(synced["spec"].get("role").is_none(), "what a reference stands for is not written into the spec");
    for place in [&function, &role] {
        harness.delete(place).await;
        harness.gone(place).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_is_bounded_when_aws_is_unreachable_and_tells_what_is_left() {
    let proxy = Proxy::start(&moto().address).await;
    let mut with = settings(&proxy.address);
    with.delete_timeout = Duration::from_secs(3);
    let harness = Harness::start(with).await;
    let role = at("iam", "roles", "default", "stuck");
    harness
        .apply(&role, "Role", json!({}), json!({"name": "stuck", "assumeRolePolicyDocument": TRUST}))
        .await;
    harness.synced(&role).await;
    proxy.inject("POST", Fault::CutBefore, usize::MAX);
    let history = harness.history(&role).await;
    harness.delete(&role).await;
    harness.gone(&role).await;
    let states = history.await.expect("the states");
    let blocked = states.iter().find(|object| has(object, "Ready", "False")).expect("a blocked deletion");
    assert_eq!(condition(blocked, "Ready").expect("ready")["reason"], "AWSUnreachable");
    harness
        .until("an event names what is left", async || {
            harness.events("stuck").await.contains(&"LeftBehind".to_owned()).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resync_without_changes_writes_nothing() {
    let proxy = Proxy::start(&moto().address).await;
    let mut with = settings(&proxy.address);
    with.resync = Duration::from_millis(200);
    let harness = Harness::start(with).await;
    let bucket = at("s3", "buckets", "default", "quiet");
    harness
        .apply(
            &bucket,
            "Bucket",
            json!({}),
            json!({"name": "quiet-bucket", "versioning": {"status": "Enabled"}}),
        )
        .await;
    let synced = harness.synced(&bucket).await;
    let resyncs = async || {
        let calls = proxy.calls();
        harness.until("several resyncs", async || (proxy.calls() > calls + 20).then_some(())).await;
    };
    // Late initialization and its echo come to rest first.
    let mut version = synced["metadata"]["resourceVersion"].clone();
    loop {
        resyncs().await;
        let now = harness.get(&bucket).await.expect("the bucket")["metadata"]["resourceVersion"].clone();
        if std::mem::replace(&mut version, now.clone()) == now {
            break;
        }
    }
    let writes = proxy.writes().len();
    resyncs().await;
    assert_eq!(proxy.writes().len(), writes);
    assert_eq!(harness.get(&bucket).await.expect("the bucket")["metadata"]["resourceVersion"], version);
    harness.delete(&bucket).await;
    harness.gone(&bucket).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn identifying_field_cannot_move_and_no_second_resource_is_made() {
    let aws = moto();
    let harness = Harness::start(settings(&aws.address)).await;
    let role = at("iam", "roles", "default", "moves");
    harness
        .apply(&role, "Role", json!({}), json!({"name": "moves-one", "assumeRolePolicyDocument": TRUST}))
        .await;
    harness.synced(&role).await;
    harness.patch(&role, json!({"spec": {"name": "moves-two"}})).await;
    let refused = harness.eventually(&role, |object| has(object, "ACK.Terminal", "True")).await;
    assert_eq!(
        condition(&refused, "ACK.Terminal").expect("terminal")["message"],
        "name is immutable; the AWS resource is moves-one"
    );
    let (status, _) = aws.query("iam", "Action=GetRole&RoleName=moves-two&Version=2010-05-08").await;
    assert_eq!(status, 404);
    harness.delete(&role).await;
    harness.gone(&role).await;
    let (status, _) = aws.query("iam", "Action=GetRole&RoleName=moves-one&Version=2010-05-08").await;
    assert_eq!(status, 404, "what was created is deleted, whatever the spec says by now");
}

#[tokio::test(flavor = "multi_thread")]
async fn region_of_a_resource_cannot_change_and_namespaces_choose_theirs() {
    let aws = moto();
    let harness = Harness::start(settings(&aws.address)).await;
    harness.namespace("regional", json!({"services.k8s.aws/default-region": "eu-west-1"})).await;
    let table = at("dynamodb", "tables", "regional", "there");
    let spec = json!({"tableName": "there", "billingMode": "PAY_PER_REQUEST",
        "attributeDefinitions": [{"attributeName": "id", "attributeType": "S"}],
        "keySchema": [{"attributeName": "id", "keyType": "HASH"}]});
    harness.apply(&table, "Table", json!({}), spec.clone()).await;
    let synced = harness.synced(&table).await;
    assert_eq!(synced["status"]["ackResourceMetadata"]["region"], "eu-west-1");
    harness.apply(&table, "Table", json!({"services.k8s.aws/region": "us-west-2"}), spec.clone()).await;
    let refused = harness.eventually(&table, |object| has(object, "ACK.Terminal", "True")).await;
    assert_eq!(
        condition(&refused, "ACK.Terminal").expect("terminal")["message"],
        "Resource already exists in region eu-west-1, but the desired state specifies region us-west-2. "
    );
    harness.apply(&table, "Table", json!({}), spec).await;
    harness.synced(&table).await;
    harness.delete(&table).await;
    harness.gone(&table).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn field_export_copies_to_config_map_and_secret() {
    let aws = moto();
    let harness = Harness::start(settings(&aws.address)).await;
    let role = at("iam", "roles", "default", "exported");
    harness
        .apply(&role, "Role", json!({}), json!({"name": "exported", "assumeRolePolicyDocument": TRUST}))
        .await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "out"}});
    harness
        .call("POST", "/api/v1/namespaces/default/configmaps", Some(("application/json", &map)))
        .await
        .expect("a map");
    let export = at("x", "fieldexports", "default", "arn");
    let export = crate::harness::At { path: export.path.replace("x.services", "services"), ..export };
    let spec = |to: serde_json::Value, path: &str| {
        json!({"to": to, "from": {"path": path,
        "resource": {"group": "iam.services.k8s.aws", "kind": "Role", "name": "exported"}}})
    };
    let to = json!({"name": "out", "kind": "configmap"});
    harness
        .apply(&export, "FieldExport", json!({}), spec(to.clone(), ".status.ackResourceMetadata.arn"))
        .await;
    harness
        .until("the value is there", async || {
            let map =
                harness.call("GET", "/api/v1/namespaces/default/configmaps/out", None).await.expect("a map");
            (map["data"]["default.arn"] == "arn:aws:iam::123456789012:role/exported").then_some(())
        })
        .await;
    harness.apply(&export, "FieldExport", json!({}), spec(to.clone(), ".status.nothing")).await;
    harness
        .eventually(&export, |object| {
            condition(object, "ACK.Recoverable")
                .is_some_and(|condition| condition["message"] == "path does not exist in this object")
        })
        .await;
    for (path, message) in
        [("nonsense |", "unable to parse path"), (".status.ackResourceMetadata", "unable to execute query")]
    {
        harness.apply(&export, "FieldExport", json!({}), spec(to.clone(), path)).await;
        harness
            .eventually(&export, |object| {
                condition(object, "ACK.Terminal").is_some_and(|condition| condition["message"] == message)
            })
            .await;
    }
    let value = async || {
        let map =
            harness.call("GET", "/api/v1/namespaces/default/configmaps/out", None).await.expect("a map");
        map["data"]["default.arn"].clone()
    };
    // The key goes with the export if that is asked for.
    let selected = ".status.conditions[] | select(.type == \"Ready\") | .status";
    let deletes = json!({"services.k8s.aws/deletion-policy": "delete"});
    harness.apply(&export, "FieldExport", deletes, spec(to, selected)).await;
    harness.until("the condition is exported", async || (value().await == "True").then_some(())).await;
    harness.delete(&export).await;
    harness.gone(&export).await;
    assert_eq!(value().await, serde_json::Value::Null);
    harness.delete(&role).await;
    harness.gone(&role).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retained_resource_is_let_go_without_aws_and_a_denied_deletion_is_bounded() {
    let proxy = Proxy::start(&moto().address).await;
    let mut with = settings(&proxy.address);
    with.delete_timeout = Duration::from_secs(3);
    let harness = Harness::start(with).await;
    let spec = |name: &str| json!({"name": name, "assumeRolePolicyDocument": TRUST});
    let (kept, denied) = (at("iam", "roles", "default", "kept"), at("iam", "roles", "default", "refused"));
    harness.apply(&kept, "Role", json!({"services.k8s.aws/deletion-policy": "retain"}), spec("kept")).await;
    harness.apply(&denied, "Role", json!({}), spec("refused")).await;
    for place in [&kept, &denied] {
        harness.synced(place).await;
    }
    proxy.inject("", Fault::CutBefore, usize::MAX);
    harness.delete(&kept).await;
    harness.gone(&kept).await;
    proxy.clear();
    let (code, _) = moto().query("iam", "Action=GetRole&RoleName=kept&Version=2010-05-08").await;
    assert_eq!(code, 200);

    proxy.inject("DeleteRole", Fault::Answer(403, "AccessDenied"), usize::MAX);
    let history = harness.history(&denied).await;
    harness.delete(&denied).await;
    harness.gone(&denied).await;
    let states = history.await.expect("the states");
    let refused = states.iter().find(|object| has(object, "Ready", "False")).expect("a refused deletion");
    assert_eq!(condition(refused, "Ready").expect("ready")["reason"], "DeletionDenied");
    harness
        .until("an event names what is left", async || {
            harness.events("refused").await.contains(&"LeftBehind".to_owned()).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn field_export_to_a_secret_under_a_given_key_waits_for_both() {
    let harness = Harness::start(settings(&moto().address)).await;
    let export = at("x", "fieldexports", "default", "to-secret");
    let export = crate::harness::At { path: export.path.replace("x.services", "services"), ..export };
    let spec = json!({"to": {"name": "target", "kind": "secret", "key": "arn"}, "from": {"path": ".status.ackResourceMetadata.arn",
        "resource": {"group": "iam.services.k8s.aws", "kind": "Role", "name": "source"}}});
    harness.apply(&export, "FieldExport", json!({}), spec).await;
    let role = at("iam", "roles", "default", "source");
    harness
        .apply(&role, "Role", json!({}), json!({"name": "source", "assumeRolePolicyDocument": TRUST}))
        .await;
    harness
        .eventually(&export, |object| {
            condition(object, "ACK.Recoverable").is_some_and(|condition| {
                condition["message"] == "unable to get existing secret: secrets \"target\" not found"
            })
        })
        .await;
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "target"}});
    harness.call("POST", secrets, Some(("application/json", &secret))).await.expect("a Secret");
    // The next change of the source brings it.
    harness.patch(&role, json!({"spec": {"description": "changed"}})).await;
    harness
        .until("the value is there", async || {
            let found = harness.call("GET", &format!("{secrets}/target"), None).await.expect("a Secret");
            found["data"]["arn"].is_string().then_some(())
        })
        .await;
    harness.delete(&export).await;
    harness.gone(&export).await;
    let found = harness.call("GET", &format!("{secrets}/target"), None).await.expect("a Secret");
    assert!(found["data"]["arn"].is_string(), "what was exported stays");
    harness.delete(&role).await;
    harness.gone(&role).await;
}

/// Defaults of AWS were written into the user's spec, and GitOps tools fought them.
#[tokio::test(flavor = "multi_thread")]
async fn late_initialized_fields_have_a_manager_of_their_own_and_yield_to_the_user() {
    let proxy = Proxy::start(&moto().address).await;
    let harness = Harness::start(settings(&proxy.address)).await;
    let role = at("iam", "roles", "default", "late");
    let without = Fault::Replace("<MaxSessionDuration>3600</MaxSessionDuration>", "");
    proxy.inject("GetRole", without, usize::MAX);
    let spec = json!({"name": "late", "assumeRolePolicyDocument": TRUST});
    harness.apply(&role, "Role", json!({}), spec.clone()).await;
    let delayed = harness.eventually(&role, |object| has(object, "ACK.LateInitialized", "False")).await;
    let late = condition(&delayed, "ACK.LateInitialized").expect("a condition");
    assert_eq!(late["reason"], "Delayed Late Initialization");
    assert_eq!(late["message"], "Late initialization did not complete, requeuing with delay of 5 seconds");
    assert!(has(&delayed, "ACK.ResourceSynced", "False"), "{delayed:#}");
    proxy.clear();
    let synced = harness.synced(&role).await;
    assert!(has(&synced, "ACK.LateInitialized", "True"));
    assert_eq!((&synced["spec"]["maxSessionDuration"], &synced["spec"]["path"]), (&json!(3600), &json!("/")));
    let managers = synced["metadata"]["managedFields"].as_array().expect("managers");
    let fields = |manager: &str| {
        let entry =
            managers.iter().find(|entry| entry["manager"] == manager && entry["operation"] == "Apply");
        entry.expect("a manager")["fieldsV1"]["f:spec"].clone()
    };
    let own = fields("orlop-aws-late-initialize");
    assert!(own.get("f:maxSessionDuration").is_some() && own.get("f:path").is_some(), "{own}");
    assert!(own.get("f:name").is_none() && fields("user").get("f:path").is_none());
    // Applied again without them, they stay; set by the user, they are the user's.
    let applied = harness.apply(&role, "Role", json!({}), spec.clone()).await;
    assert_eq!(applied["spec"]["maxSessionDuration"], 3600);
    let mut longer = spec;
    longer["maxSessionDuration"] = json!(7200);
    harness.apply(&role, "Role", json!({}), longer).await;
    harness
        .until("AWS has the user's value", async || {
            let query = "Action=GetRole&RoleName=late&Version=2010-05-08";
            moto().query("iam", query).await.1.contains(">7200<").then_some(())
        })
        .await;
    assert_eq!(harness.synced(&role).await["spec"]["maxSessionDuration"], 7200);
    harness.delete(&role).await;
    harness.gone(&role).await;
}

/// A deletion that AWS refused could only be ended by taking the finalizer away.
#[tokio::test(flavor = "multi_thread")]
async fn blocked_deletion_is_let_go_by_retain() {
    let proxy = Proxy::start(&moto().address).await;
    let harness = Harness::start(settings(&proxy.address)).await;
    let role = at("iam", "roles", "default", "held");
    harness.apply(&role, "Role", json!({}), json!({"name": "held", "assumeRolePolicyDocument": TRUST})).await;
    harness.synced(&role).await;
    proxy.inject("", Fault::CutBefore, usize::MAX);
    harness.delete(&role).await;
    harness
        .eventually(&role, |object| {
            condition(object, "Ready").is_some_and(|ready| ready["reason"] == "AWSUnreachable")
        })
        .await;
    harness
        .patch(&role, json!({"metadata": {"annotations": {"services.k8s.aws/deletion-policy": "retain"}}}))
        .await;
    harness.gone(&role).await;
    let (status, _) = moto().query("iam", "Action=GetRole&RoleName=held&Version=2010-05-08").await;
    assert_eq!(status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn tag_of_the_user_wins_over_the_systems_of_the_same_key() {
    let aws = moto();
    let harness = Harness::start(settings(&aws.address)).await;
    let role = at("iam", "roles", "default", "tagged");
    let spec = json!({"name": "tagged", "assumeRolePolicyDocument": TRUST,
        "tags": [{"key": "services.k8s.aws/namespace", "value": "mine"}]});
    harness.apply(&role, "Role", json!({}), spec.clone()).await;
    let synced = harness.synced(&role).await;
    assert_eq!(synced["spec"]["tags"], spec["tags"], "none of the system's is written into the spec");
    let (_, tags) = aws.query("iam", "Action=ListRoleTags&RoleName=tagged&Version=2010-05-08").await;
    assert!(tags.contains("<Value>mine</Value>") && !tags.contains("<Value>default</Value>"), "{tags}");
    assert!(tags.contains("services.k8s.aws/controller-version"), "{tags}");
    harness.delete(&role).await;
    harness.gone(&role).await;
}

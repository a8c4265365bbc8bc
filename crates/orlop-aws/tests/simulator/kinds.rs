//! Each kind: create, update, drift, delete.

use serde_json::json;

use crate::{
    harness::{Harness, at, condition, settings},
    simulators::moto,
};

pub(crate) const TRUST: &str = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"lambda.amazonaws.com"},"Action":"sts:AssumeRole"}]}"#;

#[tokio::test(flavor = "multi_thread")]
async fn role_follows_its_object_and_drift_is_repaired() {
    let aws = moto();
    let mut harness = Harness::start(settings(&aws.address)).await;
    let role = at("iam", "roles", "default", "walk");
    let spec = json!({"name": "walk-role", "assumeRolePolicyDocument": TRUST, "description": "one",
        "inlinePolicies": {"logs": r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"logs:*","Resource":"*"}]}"#},
        "tags": [{"key": "team", "value": "a"}]});
    harness.apply(&role, "Role", json!({}), spec).await;
    let created = harness.synced(&role).await;
    assert_eq!(created["status"]["ackResourceMetadata"]["arn"], "arn:aws:iam::123456789012:role/walk-role");
    assert_eq!(created["metadata"]["finalizers"], json!(["finalizers.iam.services.k8s.aws/Role"]));
    // AWS' default is shown, the system's tags are not.
    assert_eq!(created["spec"]["maxSessionDuration"], 3600);
    assert_eq!(created["spec"]["tags"], json!([{"key": "team", "value": "a"}]));
    let (_, tags) = aws.query("iam", "Action=ListRoleTags&RoleName=walk-role&Version=2010-05-08").await;
    assert!(tags.contains("services.k8s.aws/namespace") && tags.contains("team"), "{tags}");

    harness.patch(&role, json!({"spec": {"description": "two", "tags": [{"key": "team", "value": "b"}], "inlinePolicies": null}})).await;
    harness
        .until("the update arrives", async || {
            let (_, found) = aws.query("iam", "Action=GetRole&RoleName=walk-role&Version=2010-05-08").await;
            let (_, tags) =
                aws.query("iam", "Action=ListRoleTags&RoleName=walk-role&Version=2010-05-08").await;
            let (_, inline) =
                aws.query("iam", "Action=ListRolePolicies&RoleName=walk-role&Version=2010-05-08").await;
            (found.contains("two") && tags.contains("<Value>b</Value>") && !inline.contains("logs"))
                .then_some(())
        })
        .await;

    // Somebody changes it behind our back; the next look repairs it.
    let drift =
        "Action=UpdateRole&RoleName=walk-role&Description=drifted&MaxSessionDuration=3600&Version=2010-05-08";
    aws.query("iam", drift).await;
    harness.launch();
    harness
        .until("drift is repaired", async || {
            let (_, found) = aws.query("iam", "Action=GetRole&RoleName=walk-role&Version=2010-05-08").await;
            found.contains("two").then_some(())
        })
        .await;
    harness
        .until("an event tells of it", async || {
            harness.events("walk").await.contains(&"Updated".to_owned()).then_some(())
        })
        .await;

    harness.synced(&role).await;
    harness.delete(&role).await;
    harness.gone(&role).await;
    let (status, _) = aws.query("iam", "Action=GetRole&RoleName=walk-role&Version=2010-05-08").await;
    assert_eq!(status, 404);
    harness.assert_allowed();
}

/// A zip with one empty entry list: simulators only look at its bytes.
pub(crate) const ZIP: &str = "UEsFBgAAAAAAAAAAAAAAAAAAAAAAAA==";

#[tokio::test(flavor = "multi_thread")]
async fn policy_keeps_five_versions_and_waits_while_it_is_attached() {
    let aws = moto();
    let harness = Harness::start(settings(&aws.address)).await;
    let policy = at("iam", "policies", "default", "versions");
    let document = |action: &str| {
        json!({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": action, "Resource": "*"}]}).to_string()
    };
    harness
        .apply(
            &policy,
            "Policy",
            json!({}),
            json!({"name": "versions", "policyDocument": document("s3:Get0")}),
        )
        .await;
    let created = harness.synced(&policy).await;
    let arn = created["status"]["ackResourceMetadata"]["arn"].as_str().expect("an ARN").to_owned();
    for version in 1..=6 {
        let action = format!("s3:Get{version}");
        harness.patch(&policy, json!({"spec": {"policyDocument": document(&action)}})).await;
        let wanted = format!("v{}", version + 1);
        harness.eventually(&policy, |object| object["status"]["defaultVersionID"] == wanted.as_str()).await;
    }
    let role = at("iam", "roles", "default", "holder");
    let spec = json!({"name": "holder", "assumeRolePolicyDocument": TRUST, "policyRefs": [{"from": {"name": "versions"}}]});
    harness.apply(&role, "Role", json!({}), spec).await;
    harness.synced(&role).await;
    let (_, attached) =
        aws.query("iam", "Action=ListAttachedRolePolicies&RoleName=holder&Version=2010-05-08").await;
    assert!(attached.contains(&arn), "{attached}");
    harness.delete(&policy).await;
    harness
        .eventually(&policy, |object| {
            condition(object, "Ready").is_some_and(|ready| ready["reason"] == "DeletionFailed")
        })
        .await;
    harness.delete(&role).await;
    harness.gone(&role).await;
    harness.gone(&policy).await;
    harness.assert_allowed();
}

#[tokio::test(flavor = "multi_thread")]
async fn function_takes_code_configuration_concurrency_and_alias_permissions() {
    let aws = moto();
    let harness = Harness::start(settings(&aws.address)).await;
    let role = at("iam", "roles", "default", "runs");
    harness.apply(&role, "Role", json!({}), json!({"name": "runs", "assumeRolePolicyDocument": TRUST})).await;
    let function = at("lambda", "functions", "default", "hello");
    let spec = json!({"name": "hello", "code": {"zipFile": ZIP}, "runtime": "python3.12", "handler": "main.handler",
        "roleRef": {"from": {"name": "runs"}}, "environment": {"variables": {"A": "1"}}, "timeout": 10,
        "reservedConcurrentExecutions": 5});
    harness.apply(&function, "Function", json!({}), spec).await;
    let created = harness.synced(&function).await;
    assert_eq!(created["status"]["state"], "Active");
    let read = async || aws.rest("lambda", "GET", "/2015-03-31/functions/hello", None).await.1;
    let found = read().await;
    assert_eq!(found["Configuration"]["Timeout"], 10);
    assert_eq!(found["Concurrency"]["ReservedConcurrentExecutions"], 5);
    let change = json!({"spec": {"timeout": null, "environment": {"variables": {"A": "2", "B": "3"}},
        "reservedConcurrentExecutions": null}});
    harness.patch(&function, change).await;
    harness
        .until("the change arrives", async || {
            let found = read().await;
            let configuration = &found["Configuration"];
            (configuration["Timeout"] == 3
                && configuration["Environment"]["Variables"]["B"] == "3"
                && found["Concurrency"]["ReservedConcurrentExecutions"].is_null())
            .then_some(())
        })
        .await;

    let alias = at("lambda", "aliases", "default", "live");
    let permission = |source: &str| {
        json!([{"statementID": "invoke", "action": "lambda:InvokeFunction",
        "principal": "apigateway.amazonaws.com", "sourceARN": source}])
    };
    let spec = json!({"name": "live", "functionRef": {"from": {"name": "hello"}}, "functionVersion": "$LATEST",
        "permissions": permission("arn:aws:execute-api:us-east-1:123456789012:a/*")});
    harness.apply(&alias, "Alias", json!({}), spec).await;
    harness.synced(&alias).await;
    for place in [&alias, &function, &role] {
        harness.delete(place).await;
        harness.gone(place).await;
    }
    let (status, _) = aws.rest("lambda", "GET", "/2015-03-31/functions/hello", None).await;
    assert_eq!(status, 404);
    harness.assert_allowed();
}

#[tokio::test(flavor = "multi_thread")]
async fn http_api_with_its_parts_in_any_order_and_away_in_any_order() {
    let aws = moto();
    let harness = Harness::start(settings(&aws.address)).await;
    let place = |plural: &str| at("apigatewayv2", plural, "default", "web");
    let (api, stage, integration, route) =
        (place("apis"), place("stages"), place("integrations"), place("routes"));
    let of_api = json!({"from": {"name": "web"}});
    // Children first: they wait for what they refer to.
    harness
        .apply(
            &route,
            "Route",
            json!({}),
            json!({"apiRef": of_api, "routeKey": "$default", "targetRef": of_api}),
        )
        .await;
    let spec = json!({"apiRef": of_api, "integrationType": "HTTP_PROXY", "integrationMethod": "ANY",
        "integrationURI": "https://example.org", "payloadFormatVersion": "1.0"});
    harness.apply(&integration, "Integration", json!({}), spec).await;
    harness
        .apply(
            &stage,
            "Stage",
            json!({}),
            json!({"apiRef": of_api, "stageName": "$default", "autoDeploy": true}),
        )
        .await;
    harness
        .apply(&api, "API", json!({}), json!({"name": "web", "protocolType": "HTTP", "description": "one"}))
        .await;
    for place in [&api, &stage, &integration, &route] {
        harness.synced(place).await;
    }
    let id = harness.get(&api).await.expect("the API")["status"]["apiID"].as_str().expect("an id").to_owned();
    let (_, routes) = aws.rest("apigateway", "GET", &format!("/v2/apis/{id}/routes"), None).await;
    let target = routes["items"][0]["target"].as_str().unwrap_or_default();
    assert!(target.starts_with("integrations/"), "{routes}");
    harness.patch(&api, json!({"spec": {"description": "two", "tags": {"team": "a"}}})).await;
    harness.patch(&route, json!({"spec": {"routeKey": "GET /x"}})).await;
    harness
        .until("the changes arrive", async || {
            let (_, found) = aws.rest("apigateway", "GET", &format!("/v2/apis/{id}"), None).await;
            let (_, routes) = aws.rest("apigateway", "GET", &format!("/v2/apis/{id}/routes"), None).await;
            (found["description"] == "two"
                && found["tags"]["team"] == "a"
                && routes["items"][0]["routeKey"] == "GET /x")
                .then_some(())
        })
        .await;
    for place in [&api, &stage, &integration, &route] {
        harness.delete(place).await;
    }
    for place in [&api, &stage, &integration, &route] {
        harness.gone(place).await;
    }
    let (status, _) = aws.rest("apigateway", "GET", &format!("/v2/apis/{id}"), None).await;
    assert_eq!(status, 404);
    harness.assert_allowed();
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_is_requested_once_and_names_its_validation_record() {
    let aws = moto();
    let harness = Harness::start(settings(&aws.address)).await;
    let certificate = at("acm", "certificates", "default", "site");
    let spec = json!({"domainName": "site.example.com", "subjectAlternativeNames": ["www.example.com"],
        "tags": [{"key": "team", "value": "a"}]});
    harness.apply(&certificate, "Certificate", json!({}), spec).await;
    let synced = harness.synced(&certificate).await;
    assert!(
        synced["status"]["domainValidations"][0]["resourceRecord"]["type_"] == "CNAME",
        "{:#}",
        synced["status"]
    );
    let arn = synced["status"]["ackResourceMetadata"]["arn"].clone();
    harness.patch(&certificate, json!({"spec": {"tags": [{"key": "team", "value": "b"}]}})).await;
    harness
        .until("the tag arrives", async || {
            let (_, tags) = aws
                .json("acm", "CertificateManager.ListTagsForCertificate", json!({"CertificateArn": arn}))
                .await;
            tags["Tags"].as_array()?.iter().any(|tag| tag["Value"] == "b").then_some(())
        })
        .await;
    harness.delete(&certificate).await;
    harness.gone(&certificate).await;
    harness.assert_allowed();
}

#[tokio::test(flavor = "multi_thread")]
async fn zone_and_records_follow_and_a_full_zone_names_what_is_left() {
    let aws = moto();
    let harness = Harness::start(settings(&aws.address)).await;
    let (zone, record) =
        (at("route53", "hostedzones", "default", "zone"), at("route53", "recordsets", "default", "www"));
    harness
        .apply(
            &zone,
            "HostedZone",
            json!({}),
            json!({"name": "records.example.", "hostedZoneConfig": {"comment": "c"}}),
        )
        .await;
    let created = harness.synced(&zone).await;
    let id = created["status"]["id"].as_str().expect("an id").trim_start_matches("/hostedzone/").to_owned();
    let spec = json!({"hostedZoneRef": {"from": {"name": "zone"}}, "name": "www", "recordType": "A", "ttl": 60,
        "resourceRecords": [{"value": "192.0.2.1"}]});
    harness.apply(&record, "RecordSet", json!({}), spec).await;
    harness.synced(&record).await;
    let records =
        async || aws.send("route53", "GET", &format!("/2013-04-01/hostedzone/{id}/rrset"), &[], "").await.1;
    assert!(records().await.contains("www.records.example."));
    harness.patch(&record, json!({"spec": {"resourceRecords": [{"value": "192.0.2.2"}]}})).await;
    harness.until("the change arrives", async || records().await.contains("192.0.2.2").then_some(())).await;
    harness.synced(&record).await;
    harness.delete(&zone).await;
    harness
        .eventually(&zone, |object| {
            condition(object, "Ready").is_some_and(|ready| {
                ready["message"].as_str().is_some_and(|text| text.contains("www.records.example."))
            })
        })
        .await;
    harness.delete(&record).await;
    harness.gone(&record).await;
    harness.gone(&zone).await;
    harness.assert_allowed();
}

#[tokio::test(flavor = "multi_thread")]
async fn bucket_parts_are_set_changed_and_removed() {
    let aws = moto();
    let harness = Harness::start(settings(&aws.address)).await;
    let bucket = at("s3", "buckets", "default", "parts");
    let policy = |action: &str| {
        json!({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"AWS": "123456789012"},
        "Action": action, "Resource": "arn:aws:s3:::parts-bucket/*"}]}).to_string()
    };
    let spec = json!({"name": "parts-bucket", "versioning": {"status": "Enabled"}, "policy": policy("s3:GetObject"),
        "cors": {"corsRules": [{"allowedMethods": ["GET"], "allowedOrigins": ["*"], "maxAgeSeconds": 5}]},
        "lifecycle": {"rules": [{"id": "old", "status": "Enabled", "filter": {"prefix": "tmp/"}, "expiration": {"days": 1}}]},
        "encryption": {"rules": [{"applyServerSideEncryptionByDefault": {"sseAlgorithm": "AES256"}}]},
        "website": {"indexDocument": {"suffix": "index.html"}}, "tagging": {"tagSet": [{"key": "team", "value": "a"}]},
        "publicAccessBlock": {"blockPublicACLs": true}});
    harness.apply(&bucket, "Bucket", json!({}), spec).await;
    harness.synced(&bucket).await;
    let part = async |query: &str| aws.send("s3", "GET", &format!("/parts-bucket?{query}"), &[], "").await;
    assert!(part("versioning").await.1.contains("Enabled"));
    assert!(part("cors").await.1.contains("<MaxAgeSeconds>5"));
    assert!(part("tagging").await.1.contains("services.k8s.aws/uid"));
    let change = json!({"spec": {"versioning": {"status": "Suspended"}, "cors": null, "website": null, "policy": policy("s3:PutObject")}});
    harness.patch(&bucket, change).await;
    harness
        .until("the changes arrive", async || {
            let gone = part("cors").await.0 == 404 && part("website").await.0 == 404;
            (gone
                && part("versioning").await.1.contains("Suspended")
                && part("policy").await.1.contains("PutObject"))
            .then_some(())
        })
        .await;
    harness.synced(&bucket).await;
    harness.delete(&bucket).await;
    harness.gone(&bucket).await;
    assert_eq!(part("versioning").await.0, 404);
    harness.assert_allowed();
}

#[tokio::test(flavor = "multi_thread")]
async fn table_changes_one_index_at_a_time_and_is_protected_from_deletion() {
    let aws = moto();
    let harness = Harness::start(settings(&aws.address)).await;
    let table = at("dynamodb", "tables", "default", "orders");
    let attribute = |name: &str| json!({"attributeName": name, "attributeType": "S"});
    let index = |name: &str| {
        json!({"indexName": name, "keySchema": [{"attributeName": name, "keyType": "HASH"}],
        "projection": {"projectionType": "ALL"}})
    };
    let spec = json!({"tableName": "orders", "billingMode": "PAY_PER_REQUEST", "deletionProtectionEnabled": true,
        "attributeDefinitions": [attribute("id"), attribute("a")], "keySchema": [{"attributeName": "id", "keyType": "HASH"}],
        "globalSecondaryIndexes": [index("a")], "timeToLive": {"attributeName": "expires", "enabled": true}});
    harness.apply(&table, "Table", json!({}), spec).await;
    harness.synced(&table).await;
    let read = async || {
        aws.json("dynamodb", "DynamoDB_20120810.DescribeTable", json!({"TableName": "orders"})).await
    };
    let change = json!({"spec": {"attributeDefinitions": [attribute("id"), attribute("b"), attribute("c")],
        "globalSecondaryIndexes": [index("b"), index("c")], "continuousBackups": {"pointInTimeRecoveryEnabled": true}}});
    harness.patch(&table, change).await;
    harness
        .until("both indexes are there", async || {
            let (_, found) = read().await;
            let mut names: Vec<_> = found["Table"]["GlobalSecondaryIndexes"]
                .as_array()?
                .iter()
                .filter_map(|index| index["IndexName"].as_str())
                .collect();
            names.sort_unstable();
            (names == ["b", "c"]).then_some(())
        })
        .await;
    harness.synced(&table).await;
    harness.delete(&table).await;
    harness
        .eventually(&table, |object| {
            condition(object, "Ready").is_some_and(|ready| ready["reason"] == "DeletionFailed")
        })
        .await;
    harness.patch(&table, json!({"spec": {"deletionProtectionEnabled": false}})).await;
    harness.gone(&table).await;
    assert_eq!(read().await.0, 400);
    harness.assert_allowed();
}

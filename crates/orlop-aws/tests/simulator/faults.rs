//! Faults of AWS and of the controllers themselves: one resource, none leaked.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    cases::encode,
    harness::{Harness, at, condition, has, of_account, settings},
    kinds::{TRUST, ZIP},
    proxy::{Fault, Proxy},
    simulators::{ministack, moto},
};

/// Names of the APIs that a simulator has.
async fn apis(name: &str) -> Vec<Value> {
    let (_, answer) = moto().rest("apigateway", "GET", "/v2/apis", None).await;
    let items = answer["items"].as_array().cloned().unwrap_or_default();
    items.into_iter().filter(|api| api["name"] == name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_answer_of_a_create_makes_one_resource() {
    let proxy = Proxy::start(&moto().address).await;
    let harness = Harness::start(settings(&proxy.address)).await;
    let api = at("apigatewayv2", "apis", "default", "lost");
    proxy.inject("POST /v2/apis", Fault::CutAfterSend, 1);
    harness.apply(&api, "API", json!({}), json!({"name": "lost-api", "protocolType": "HTTP"})).await;
    harness.synced(&api).await;
    assert_eq!(apis("lost-api").await.len(), 1);
    harness.delete(&api).await;
    harness.gone(&api).await;
    assert_eq!(apis("lost-api").await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn throttling_server_errors_and_stale_reads_converge() {
    let proxy = Proxy::start(&moto().address).await;
    let harness = Harness::start(settings(&proxy.address)).await;
    let faults = [
        Fault::Answer(400, "Throttling"),
        Fault::Answer(503, "ServiceUnavailable"),
        Fault::CutBefore,
        Fault::CutAfterSend,
        Fault::Delay(std::time::Duration::from_millis(300)),
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        let name = format!("fault-{number}");
        let role = at("iam", "roles", "default", &name);
        proxy.inject("CreateRole", fault, 2);
        // The first read after the create is stale.
        proxy.inject("GetRole", Fault::Answer(404, "NoSuchEntity"), 2);
        harness
            .apply(&role, "Role", json!({}), json!({"name": name, "assumeRolePolicyDocument": TRUST}))
            .await;
        let synced = harness.synced(&role).await;
        assert!(condition(&synced, "ACK.Recoverable").is_none());
        harness.delete(&role).await;
        harness.gone(&role).await;
        proxy.clear();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_call_is_named_and_recovers_when_it_is_granted() {
    let proxy = Proxy::start(&moto().address).await;
    let harness = Harness::start(settings(&proxy.address)).await;
    let role = at("iam", "roles", "default", "denied");
    proxy.inject("CreateRole", Fault::Answer(403, "AccessDenied"), usize::MAX);
    harness
        .apply(&role, "Role", json!({}), json!({"name": "denied", "assumeRolePolicyDocument": TRUST}))
        .await;
    let denied = harness.eventually(&role, |object| has(object, "ACK.Recoverable", "True")).await;
    let reason = condition(&denied, "ACK.ResourceSynced").expect("synced")["reason"].clone();
    assert_eq!(
        reason,
        "operation error IAM: CreateRole, https response error StatusCode: 403, AccessDenied: injected"
    );
    proxy.clear();
    harness.synced(&role).await;
    harness.delete(&role).await;
    harness.gone(&role).await;
}

/// Throttled controllers came back at once, and objects that were fine flapped.
#[tokio::test(flavor = "multi_thread")]
async fn throttle_codes_of_every_service_back_off_in_silence_and_end_well() {
    let account = "600000000055";
    let aws = ministack(account);
    let key = json!([{"attributeName": "id", "keyType": "HASH"}]);
    let attributes = json!([{"attributeName": "id", "attributeType": "S"}]);
    let cases = [
        (
            "lambda",
            "functions",
            "Function",
            "/functions/slow/configuration",
            (429, "TooManyRequestsException"),
            json!({"name": "slow", "code": {"zipFile": ZIP}, "runtime": "python3.12", "handler": "a.b",
                "role": format!("arn:aws:iam::{account}:role/any")}),
            json!({"description": "b"}),
        ),
        (
            "apigatewayv2",
            "apis",
            "API",
            "PATCH /v2/apis",
            (429, "TooManyRequestsException"),
            json!({"name": "slow", "protocolType": "HTTP"}),
            json!({"description": "b"}),
        ),
        (
            "acm",
            "certificates",
            "Certificate",
            "AddTagsToCertificate",
            (400, "ThrottlingException"),
            json!({"domainName": "slow.example.com"}),
            json!({"tags": [{"key": "b", "value": "b"}]}),
        ),
        (
            "route53",
            "hostedzones",
            "HostedZone",
            "POST /2013-04-01/tags",
            (400, "Throttling"),
            json!({"name": "slow.example."}),
            json!({"tags": [{"key": "b", "value": "b"}]}),
        ),
        (
            "dynamodb",
            "tables",
            "Table",
            "DynamoDB_20120810.TagResource",
            (400, "ThrottlingException"),
            json!({"tableName": "slow", "billingMode": "PAY_PER_REQUEST", "keySchema": key, "attributeDefinitions": attributes}),
            json!({"tags": [{"key": "b", "value": "b"}]}),
        ),
        (
            "iam",
            "policies",
            "Policy",
            "TagPolicy",
            (400, "Throttling"),
            json!({"name": "slow", "policyDocument": r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:GetObject","Resource":"*"}]}"#}),
            json!({"tags": [{"key": "b", "value": "b"}]}),
        ),
        (
            "s3",
            "buckets",
            "Bucket",
            "PUT /slow-bucket?versioning",
            (503, "SlowDown"),
            json!({"name": "slow-bucket"}),
            json!({"versioning": {"status": "Enabled"}}),
        ),
        (
            "route53",
            "hostedzones",
            "HostedZone",
            "POST /2013-04-01/tags",
            (400, "PriorRequestNotComplete"),
            json!({"name": "slow.example."}),
            json!({"tags": [{"key": "c", "value": "c"}]}),
        ),
    ];
    for (service, plural, kind, matching, (status, code), spec, change) in cases {
        let proxy = Proxy::start(&aws.address).await;
        let harness = Harness::start(of_account(&proxy.address, account)).await;
        let place = at(service, plural, "default", "slow");
        harness.apply(&place, kind, json!({}), spec).await;
        let synced = harness.synced(&place).await;
        harness.until("nothing is left to do", async || proxy.is_quiet().then_some(())).await;
        // Four times refused: said from the third on, not before.
        proxy.inject(matching, Fault::Answer(status, code), 4);
        harness.patch(&place, json!({"spec": change})).await;
        let said = harness.eventually(&place, |object| has(object, "ACK.Recoverable", "True")).await;
        assert!(proxy.gaps().len() >= 2, "{kind} {code}: said after {} refusals", proxy.gaps().len() + 1);
        let text = condition(&said, "ACK.Recoverable").expect("a condition")["message"].to_string();
        assert!(text.contains(code), "{kind}: {text}");
        assert!(condition(&said, "ACK.Terminal").is_none(), "{kind} {code}");
        harness
            .eventually(&place, |object| {
                orlop_aws::is_synced(object) && condition(object, "ACK.Recoverable").is_none()
            })
            .await;
        // Writes are tried once in a pass: each wait is twice the one before, give or take the jitter. One may be cut
        // short: an event that is late adds the object once more.
        let gaps = proxy.gaps();
        assert_eq!(gaps.len(), 3, "{kind} {code}: {gaps:?}");
        let short =
            gaps.iter().zip([90, 180, 360]).filter(|(gap, wait)| **gap < Duration::from_millis(*wait));
        assert!(short.count() <= 1, "{kind} {code}: {gaps:?}");
        assert_ne!(synced["status"]["conditions"], Value::Null);
        harness.delete(&place).await;
        harness.gone(&place).await;
    }
}

/// A thousand objects at once ran into the limits of the service, and all were throttled.
#[tokio::test(flavor = "multi_thread")]
async fn thousand_functions_at_once_keep_under_the_limits_of_lambda() {
    const FUNCTIONS: usize = 1_000;
    // Three times AWS' limits, so that the test takes no longer than it must: 45 and 300 calls a second.
    const SCALE: usize = 3;
    let aws = moto();
    let proxy = Proxy::start(&aws.address).await;
    let mut with = settings(&proxy.address);
    with.rate_scale = SCALE as f64;
    with.kinds = vec!["Function".to_owned()];
    with.workers = 64;
    let harness = Harness::start(with).await;
    let made = format!(
        "Action=CreateRole&RoleName=many&AssumeRolePolicyDocument={}&Version=2010-05-08",
        encode(TRUST)
    );
    aws.query("iam", &made).await;
    for number in 0..FUNCTIONS {
        let name = format!("many-{number}");
        let spec = json!({"name": name, "code": {"zipFile": ZIP}, "runtime": "python3.12", "handler": "a.b",
            "role": "arn:aws:iam::123456789012:role/many"});
        harness.apply(&at("lambda", "functions", "default", &name), "Function", json!({}), spec).await;
    }
    let creates =
        || proxy.made().iter().filter(|call| call.starts_with("POST /2015-03-31/functions ")).count();
    harness.until("half are created", async || (creates() >= FUNCTIONS / 2).then_some(())).await;
    harness.until("all are created", async || (creates() >= FUNCTIONS).then_some(())).await;
    for (calls, limit) in
        [("POST /2015-03-31/functions", 15 * SCALE), ("GET /2015-03-31/functions/many-", 100 * SCALE)]
    {
        // Over the whole: single calls are late by as much as the machine is busy.
        let (count, span) = proxy.span_of(calls);
        let rate = count as f64 / span.as_secs_f64();
        assert!(rate <= limit as f64, "{calls}: {rate} calls a second, where {limit} are the limit");
    }
    // One create each, none refused.
    assert_eq!(creates(), FUNCTIONS);
    let refused =
        harness.observer.calls().into_iter().filter(|((_, _, outcome), _)| outcome.contains("TooMany"));
    assert_eq!(refused.count(), 0);
    for number in 0..FUNCTIONS {
        aws.rest("lambda", "DELETE", &format!("/2015-03-31/functions/many-{number}"), None).await;
    }
}

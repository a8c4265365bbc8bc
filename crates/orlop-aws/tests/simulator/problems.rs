//! Documented problems of controllers for AWS, one test each: it fails on the behaviour that was reported.

use orlop_aws::Settings;
use serde_json::{Value, json};

use crate::{
    harness::{At, Harness, at, condition, has, of_account, settings},
    kinds::{TRUST, ZIP},
    process::{Gateway, Process},
    proxy::{Fault, Proxy},
    simulators::{Simulator, ministack, moto},
    stage::create_zone,
};

fn role(name: &str) -> Value {
    json!({"name": name, "assumeRolePolicyDocument": TRUST})
}

async fn has_role(aws: &Simulator, name: &str) -> bool {
    aws.query("iam", &format!("Action=GetRole&RoleName={name}&Version=2010-05-08")).await.0 == 200
}

async fn remove(harness: &Harness, place: &At) {
    harness.delete(place).await;
    harness.gone(place).await;
}

/// Annotations of namespaces were ignored without CARM, and the first endpoint of a region was used for all namespaces.
#[tokio::test(flavor = "multi_thread")]
async fn namespaces_choose_endpoint_region_and_deletion_policy() {
    let (one, two) = (moto(), ministack("600000000018"));
    let namespaces = ["first", "second"].map(str::to_owned).to_vec();
    let mut harness = Harness::start(Settings {
        carm: false,
        namespaces,
        ..of_account("http://127.0.0.1:1", "600000000018")
    })
    .await;
    let endpoint = |address: &str| json!({"services.k8s.aws/endpoint-url": address});
    harness.namespace("first", endpoint(&one.address)).await;
    let mut annotations = endpoint(&two.address);
    annotations["services.k8s.aws/default-region"] = json!("eu-west-1");
    harness.namespace("second", annotations.clone()).await;
    let (first, second) = (at("iam", "roles", "first", "side"), at("iam", "roles", "second", "side"));
    for place in [&first, &second] {
        harness.apply(place, "Role", json!({}), role(&format!("side-{}", place.path.len()))).await;
        harness.synced(place).await;
    }
    let names = [&first, &second].map(|place| format!("side-{}", place.path.len()));
    assert!(has_role(one, &names[0]).await && !has_role(&two, &names[0]).await, "the first has an endpoint");
    assert!(has_role(&two, &names[1]).await && !has_role(one, &names[1]).await, "and the second another");
    let regional = harness.get(&second).await.expect("the role");
    assert_eq!(regional["status"]["ackResourceMetadata"]["region"], "eu-west-1");
    // Who we are was asked for once, and taken for all endpoints.
    assert_eq!(regional["status"]["ackResourceMetadata"]["ownerAccountID"], "600000000018");
    let other = harness.get(&first).await.expect("the role");
    assert_eq!(other["status"]["ackResourceMetadata"]["ownerAccountID"], "123456789012");
    remove(&harness, &first).await;
    assert!(!has_role(one, &names[0]).await, "deleted where it was made");

    // Kept by a policy of the service, of the namespace, of the object; an object's `delete` beats them all.
    annotations["iam.services.k8s.aws/deletion-policy"] = json!("retain");
    harness.namespace("second", annotations.clone()).await;
    remove(&harness, &second).await;
    assert!(has_role(&two, &names[1]).await, "the namespace's policy of the service keeps it");
    // An empty policy is none.
    annotations["iam.services.k8s.aws/deletion-policy"] = json!("");
    annotations["services.k8s.aws/deletion-policy"] = json!("retain");
    harness.namespace("second", annotations.clone()).await;
    let adopt = json!({"services.k8s.aws/adoption-policy": "adopt-or-create"});
    harness.apply(&second, "Role", adopt.clone(), role(&names[1])).await;
    harness.synced(&second).await;
    remove(&harness, &second).await;
    assert!(has_role(&two, &names[1]).await, "the namespace's policy keeps it");
    harness.settings.retain = true;
    harness.launch();
    let mut own = adopt.clone();
    own["services.k8s.aws/deletion-policy"] = json!("delete");
    harness.apply(&second, "Role", own, role(&names[1])).await;
    harness.synced(&second).await;
    remove(&harness, &second).await;
    assert!(!has_role(&two, &names[1]).await, "the object's own policy comes first");
    // The flag holds where nobody says anything.
    harness.apply(&first, "Role", json!({}), role(&names[0])).await;
    harness.synced(&first).await;
    remove(&harness, &first).await;
    assert!(has_role(one, &names[0]).await, "the flag keeps it");
}

/// A new `s3Key` did nothing without a hash, and an image changed together with the configuration lost the latter.
#[tokio::test(flavor = "multi_thread")]
async fn function_takes_a_new_s3_key_and_an_image_together_with_its_configuration() {
    let account = "600000000024";
    let aws = ministack(account);
    let proxy = Proxy::start(&aws.address).await;
    let harness = Harness::start(of_account(&proxy.address, account)).await;
    let made = at("iam", "roles", "default", "code");
    harness.apply(&made, "Role", json!({}), role("code")).await;
    aws.send("s3", "PUT", "/code-archives", &[], "").await;
    for key in ["one.zip", "two.zip"] {
        // An empty archive with a comment.
        let length = char::from(u8::try_from(key.len()).expect("a short comment"));
        let archive = format!("PK\u{5}\u{6}{}{length}\0{key}", "\0".repeat(16));
        let (code, said) = aws.send("s3", "PUT", &format!("/code-archives/{key}"), &[], &archive).await;
        assert_eq!(code, 200, "{said}");
    }
    let from = at("lambda", "functions", "default", "archive");
    let spec = json!({"name": "archive", "code": {"s3Bucket": "code-archives", "s3Key": "one.zip"}, "runtime": "python3.12",
        "handler": "main.handler", "roleRef": {"from": {"name": "code"}}});
    harness.apply(&from, "Function", json!({}), spec).await;
    let first = harness.synced(&from).await["status"]["codeSHA256"].clone();
    let updates = || proxy.made().iter().filter(|call| call.contains("/functions/archive/code")).count();
    assert_eq!(updates(), 0);
    harness.patch(&from, json!({"spec": {"code": {"s3Key": "two.zip"}}})).await;
    harness.eventually(&from, |object| object["status"]["codeSHA256"] != first).await;
    assert_eq!(updates(), 1);

    let image = at("lambda", "functions", "default", "image");
    let uri = |tag: &str| format!("123456789012.dkr.ecr.us-east-1.amazonaws.com/app:{tag}");
    let spec = json!({"name": "image", "packageType": "Image", "code": {"imageURI": uri("one")},
        "roleRef": {"from": {"name": "code"}}, "timeout": 5});
    harness.apply(&image, "Function", json!({}), spec).await;
    harness.synced(&image).await;
    harness.patch(&image, json!({"spec": {"code": {"imageURI": uri("two")}, "timeout": 21}})).await;
    harness
        .until("both arrive", async || {
            let (_, found) = aws.rest("lambda", "GET", "/2015-03-31/functions/image", None).await;
            let both = found["Code"]["ImageUri"] == uri("two") && found["Configuration"]["Timeout"] == 21;
            both.then_some(())
        })
        .await;
    harness.synced(&image).await;
    for place in [&image, &from, &made] {
        remove(&harness, place).await;
    }
    for key in ["one.zip", "two.zip"] {
        aws.send("s3", "DELETE", &format!("/code-archives/{key}"), &[], "").await;
    }
}

/// A function that is not ready counted as synced, and a role that is not known yet as an error.
#[tokio::test(flavor = "multi_thread")]
async fn function_waits_while_it_is_pending_updated_or_its_role_is_new() {
    let aws = moto();
    let proxy = Proxy::start(&aws.address).await;
    let harness = Harness::start(settings(&proxy.address)).await;
    let (made, place) = (at("iam", "roles", "default", "new"), at("lambda", "functions", "default", "new"));
    harness.apply(&made, "Role", json!({}), role("new")).await;
    proxy.inject(
        "POST /2015-03-31/functions",
        Fault::Say(
            400,
            "InvalidParameterValueException",
            "The role defined for the function cannot be assumed by Lambda.",
        ),
        5,
    );
    let spec = json!({"name": "new", "code": {"zipFile": ZIP}, "runtime": "python3.12", "handler": "main.handler",
        "roleRef": {"from": {"name": "new"}}});
    harness.apply(&place, "Function", json!({}), spec).await;
    let says = async |text: &str| {
        let waiting = harness
            .eventually(&place, |object| {
                let synced = condition(object, "ACK.ResourceSynced");
                synced.is_some_and(|synced| {
                    synced["status"] == "False" && synced["message"].to_string().contains(text)
                })
            })
            .await;
        assert!(condition(&waiting, "ACK.Terminal").is_none(), "{waiting:#}");
        assert!(!has(&waiting, "Ready", "True"), "{waiting:#}");
    };
    says("cannot be assumed by Lambda").await;
    harness.synced(&place).await;

    let function = "GET /2015-03-31/functions/new ";
    for (from, to, text) in [
        ("\"State\": \"Active\"", "\"State\": \"Pending\"", "function in 'Pending' state"),
        ("\"LastUpdateStatus\": \"Successful\"", "\"LastUpdateStatus\": \"InProgress\"", "is in progress"),
    ] {
        proxy.inject(function, Fault::Replace(from, to), usize::MAX);
        let before = proxy.writes().len();
        harness.patch(&place, json!({"spec": {"description": text}})).await;
        says(text).await;
        assert_eq!(proxy.writes().len(), before, "nothing is changed meanwhile");
        proxy.clear();
        harness.synced(&place).await;
    }
    // AWS may be at it without having shown it.
    proxy.inject("/functions/new/configuration", Fault::Answer(409, "ResourceConflictException"), 2);
    harness.patch(&place, json!({"spec": {"description": "last"}})).await;
    says("ResourceConflictException").await;
    harness.synced(&place).await;
    for place in [&place, &made] {
        remove(&harness, place).await;
    }
}

/// An update that failed counted as synced.
#[tokio::test(flavor = "multi_thread")]
async fn function_whose_update_failed_says_why() {
    let proxy = Proxy::start(&moto().address).await;
    let harness = Harness::start(settings(&proxy.address)).await;
    let (made, place) =
        (at("iam", "roles", "default", "fails"), at("lambda", "functions", "default", "fails"));
    harness.apply(&made, "Role", json!({}), role("fails")).await;
    let spec = json!({"name": "fails", "code": {"zipFile": ZIP}, "runtime": "python3.12", "handler": "main.handler",
        "roleRef": {"from": {"name": "fails"}}});
    harness.apply(&place, "Function", json!({}), spec).await;
    harness.synced(&place).await;
    let to = "\"LastUpdateStatus\": \"Failed\", \"LastUpdateStatusReason\": \"The image has no entry point\"";
    let rule = Fault::Replace("\"LastUpdateStatus\": \"Successful\"", to);
    proxy.inject("GET /2015-03-31/functions/fails ", rule, usize::MAX);
    harness.patch(&place, json!({"spec": {"description": "changed"}})).await;
    let failed = harness.eventually(&place, |object| has(object, "ACK.Recoverable", "True")).await;
    let said = &condition(&failed, "ACK.Recoverable").expect("a condition")["message"];
    assert_eq!(said, "the last update failed: The image has no entry point");
    assert!(has(&failed, "Ready", "False") && has(&failed, "ACK.ResourceSynced", "False"), "{failed:#}");
    assert_eq!(failed["status"]["lastUpdateStatus"], "Failed");
    proxy.clear();
    harness.synced(&place).await;
    for place in [&place, &made] {
        remove(&harness, place).await;
    }
}

fn definition(title: &str) -> String {
    json!({"openapi": "3.0.1", "info": {"title": title, "version": "1"}, "paths": {}}).to_string()
}

/// An import whose answer was lost made a second API, as its tags came later; a mixed spec was tried for ever.
#[tokio::test(flavor = "multi_thread")]
async fn api_by_its_body_is_made_once_and_a_mixed_spec_is_terminal() {
    let account = "600000000029";
    let aws = ministack(account);
    let proxy = Proxy::start(&aws.address).await;
    let harness = Harness::start(of_account(&proxy.address, account)).await;
    let apis = async || {
        let (_, answer) = aws.rest("apigateway", "GET", "/v2/apis", None).await;
        answer["items"].as_array().cloned().unwrap_or_default()
    };
    let (fields, body) =
        (at("apigatewayv2", "apis", "default", "fields"), at("apigatewayv2", "apis", "default", "body"));
    harness.apply(&fields, "API", json!({}), json!({"name": "fields", "protocolType": "HTTP"})).await;
    harness.synced(&fields).await;
    let mixed = json!({"name": "mixed", "protocolType": "HTTP", "body": definition("mixed")});
    harness.apply(&body, "API", json!({}), mixed).await;
    let refused = harness.eventually(&body, |object| has(object, "ACK.Terminal", "True")).await;
    assert_eq!(
        condition(&refused, "ACK.Terminal").expect("a condition")["message"],
        "only 'FailOnWarnings' and 'Basepath' fields can be used with 'Body' field"
    );
    assert_eq!(apis().await.len(), 1);

    proxy.inject("PUT /v2/apis", Fault::CutAfterSend, 1);
    harness.apply(&body, "API", json!({}), json!({"body": definition("one"), "tags": {"team": "a"}})).await;
    let synced = harness.synced(&body).await;
    let all = apis().await;
    assert_eq!(all.len(), 2, "{all:#?}");
    let made = all.iter().find(|api| api["name"] == "one").expect("the imported API");
    assert_eq!(made["apiId"], synced["status"]["apiID"]);
    assert_eq!(made["tags"]["team"], "a");
    // Formatting is no change; another definition is.
    let imports = || proxy.writes().iter().filter(|call| call.starts_with("PUT /v2/apis")).count();
    let before = imports();
    let spaced = definition("one").replace(',', ",\n  ");
    let calls = proxy.calls();
    harness.apply(&body, "API", json!({}), json!({"body": spaced, "tags": {"team": "a"}})).await;
    harness
        .until("it was looked at", async || (proxy.calls() > calls && proxy.is_quiet()).then_some(()))
        .await;
    assert_eq!(imports(), before);
    harness.apply(&body, "API", json!({}), json!({"body": definition("two"), "tags": {"team": "a"}})).await;
    harness
        .until("the definition follows", async || {
            apis().await.iter().any(|api| api["name"] == "two").then_some(())
        })
        .await;
    harness.synced(&body).await;
    for place in [&fields, &body] {
        remove(&harness, place).await;
    }
    assert_eq!(apis().await.len(), 0);
}

/// A certificate with alternative names differed for ever; keys must be nowhere but in their Secrets.
#[tokio::test(flavor = "multi_thread")]
async fn certificate_is_exported_and_imported_and_its_key_is_nowhere_else() {
    let aws = moto();
    let proxy = Proxy::start(&aws.address).await;
    let harness = Harness::without_controllers(settings(&proxy.address)).await;
    let gateway = Gateway::start(&harness.client).await;
    let more = [
        "--metrics-addr",
        "",
        "--kinds",
        "Certificate",
        "--reconcile-resource-resync-seconds",
        "Certificate=1",
    ];
    let _process = Process::start(&gateway, &proxy.address, "test", &more);
    harness.installed().await;
    let secrets = "/api/v1/namespaces/default/secrets";
    let out = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "out"}});
    let place = at("acm", "certificates", "default", "out");
    let spec = json!({"domainName": "out.example.com", "subjectAlternativeNames": ["www.out.example.com"],
        "exportTo": {"name": "out", "key": "tls.crt"}});
    harness.apply(&place, "Certificate", json!({}), spec).await;
    // The Secret is not there yet.
    let waiting = harness.eventually(&place, |object| has(object, "ACK.Recoverable", "True")).await;
    assert_eq!(
        condition(&waiting, "ACK.Recoverable").expect("a condition")["message"],
        "kubernetes secret not found"
    );
    harness.call("POST", secrets, Some(("application/json", &out))).await.expect("a Secret");
    let data = async || {
        harness.call("GET", &format!("{secrets}/out"), None).await.expect("a Secret")["data"].clone()
    };
    let exported = harness
        .until("it is exported", async || Some(data().await).filter(|data| data["tls.key"].is_string()))
        .await;
    harness.synced(&place).await;
    let decoded = |value: &Value| {
        use base64::Engine as _;
        let bytes = base64::engine::general_purpose::STANDARD.decode(value.as_str().unwrap_or_default());
        String::from_utf8(bytes.expect("base64")).expect("text")
    };
    let (certificate, key) = (decoded(&exported["tls.crt"]), decoded(&exported["tls.key"]));
    assert!(certificate.starts_with("-----BEGIN CERTIFICATE-----"), "{certificate}");
    assert!(key.starts_with("-----BEGIN PRIVATE KEY-----"));
    // Looks at a certificate with alternative names change nothing, and export nothing.
    let exports = || proxy.made().iter().filter(|call| call.contains("ExportCertificate")).count();
    let (writes, before, calls) = (proxy.writes().len(), exports(), proxy.calls());
    harness.until("several looks", async || (proxy.calls() > calls + 6).then_some(())).await;
    assert_eq!((proxy.writes().len(), exports()), (writes, before), "{:?}", proxy.writes());
    // What the Secret lost is exported again.
    let lost = json!({"data": {"tls.key": null}});
    let path = format!("{secrets}/out");
    harness.call("PATCH", &path, Some(("application/merge-patch+json", &lost))).await.expect("patched");
    harness.until("it is exported again", async || data().await["tls.key"].is_string().then_some(())).await;

    // The pair imported again, as another certificate.
    let import = at("acm", "certificates", "default", "in");
    let from = |key: &str| json!({"name": "out", "key": key});
    let spec = json!({"certificate": from("tls.crt"), "privateKey": from("tls.key")});
    harness.apply(&import, "Certificate", json!({}), spec).await;
    let imported = harness.synced(&import).await;
    assert_eq!(imported["status"]["type_"], "IMPORTED");
    let events = harness.call("GET", "/api/v1/events", None).await.expect("events").to_string();
    let objects = harness.call("GET", &place.path, None).await.expect("objects").to_string();
    let middle = key.lines().nth(2).expect("a line of the key").to_owned();
    for (what, text) in [("events", events), ("objects", objects), ("the log", gateway.log())] {
        assert!(!text.contains(&middle), "{what} have the key");
        let encoded = exported["tls.key"].as_str().unwrap_or_default();
        assert!(!text.contains(&encoded[40..80]), "{what} have the key");
    }
    assert!(gateway.log().contains("AWS answers"), "the log is looked at");
    for place in [&import, &place] {
        remove(&harness, place).await;
    }
}

/// Names that Route 53 writes its own way differed for ever; create-only failed on leftovers; adoption wanted an id.
#[tokio::test(flavor = "multi_thread")]
async fn records_of_every_form_settle_take_over_leftovers_and_are_adopted_without_an_id() {
    let account = "600000000037";
    let aws = ministack(account);
    let proxy = Proxy::start(&aws.address).await;
    let harness = Harness::start(of_account(&proxy.address, account)).await;
    let zone = create_zone(&aws, "example.com").await;
    let value = |value: &str| json!([{"value": value}]);
    let alias = json!({"dnsName": "Other.example.com.", "hostedZoneID": zone, "evaluateTargetHealth": false});
    let weighted = |identifier: &str, weight: i64| {
        json!({"name": "weighted", "recordType": "A", "ttl": 60, "setIdentifier": identifier, "weight": weight,
            "resourceRecords": value("192.0.2.9")})
    };
    let specs = [
        (
            "relative",
            json!({"name": "relative", "recordType": "A", "ttl": 60, "resourceRecords": value("192.0.2.1")}),
        ),
        (
            "absolute",
            json!({"name": "Absolute.example.com.", "recordType": "A", "ttl": 60, "resourceRecords": value("192.0.2.2")}),
        ),
        ("apex", json!({"recordType": "TXT", "ttl": 60, "resourceRecords": value("\"hello\"")})),
        (
            "wildcard",
            json!({"name": "*.wild", "recordType": "A", "ttl": 60, "resourceRecords": value("192.0.2.3")}),
        ),
        ("alias", json!({"name": "alias", "recordType": "A", "aliasTarget": alias})),
        ("blue", weighted("blue", 10)),
        ("green", weighted("green", 20)),
    ];
    let place = |name: &str| at("route53", "recordsets", "default", name);
    // Route 53 writes the asterisk its own way.
    proxy.inject("GET /2013-04-01/hostedzone", Fault::Replace("<Name>*.", "<Name>\\052."), usize::MAX);
    for (name, spec) in &specs {
        let mut spec = spec.clone();
        spec["hostedZoneID"] = json!(zone);
        harness.apply(&place(name), "RecordSet", json!({}), spec).await;
    }
    for (name, _) in &specs {
        let synced = harness.synced(&place(name)).await;
        assert_eq!(synced["status"]["status"], "INSYNC", "{name}: PENDING until the change is everywhere");
    }
    let records =
        async || aws.send("route53", "GET", &format!("/2013-04-01/hostedzone/{zone}/rrset"), &[], "").await.1;
    let all = records().await;
    for name in
        ["relative.example.com.", "absolute.example.com.", "*.wild.example.com.", "alias.example.com."]
    {
        assert!(all.contains(&format!("<Name>{name}</Name>")), "{name}: {all}");
    }
    let changes = || proxy.writes().iter().filter(|call| call.contains("/rrset")).count();
    let before = changes();
    harness.until("all is quiet", async || proxy.is_quiet().then_some(())).await;
    assert_eq!(changes(), before);

    // Let go, changed by somebody, and applied again: the leftover is taken over with UPSERT.
    let left = place("relative");
    let retain = json!({"metadata": {"annotations": {"services.k8s.aws/deletion-policy": "retain"}}});
    harness.patch(&left, retain).await;
    remove(&harness, &left).await;
    let adopt = |more: Value| {
        let mut annotations = json!({"services.k8s.aws/adoption-policy": "adopt-or-create"});
        for (key, value) in more.as_object().expect("annotations") {
            annotations[key] = value.clone();
        }
        annotations
    };
    let spec = json!({"hostedZoneID": zone, "name": "relative", "recordType": "A", "ttl": 60, "resourceRecords": value("192.0.2.77")});
    harness.apply(&left, "RecordSet", adopt(json!({})), spec).await;
    harness.synced(&left).await;
    assert!(records().await.contains("192.0.2.77"));
    // By name and type alone: records of others have no id.
    harness
        .patch(&left, json!({"metadata": {"annotations": {"services.k8s.aws/deletion-policy": "retain"}}}))
        .await;
    remove(&harness, &left).await;
    let fields = json!({"hostedZoneID": zone, "name": "relative", "recordType": "A"}).to_string();
    let annotations = adopt(
        json!({"services.k8s.aws/adoption-policy": "adopt", "services.k8s.aws/adoption-fields": fields}),
    );
    harness.apply(&left, "RecordSet", annotations, json!({"recordType": "A"})).await;
    let adopted = harness.synced(&left).await;
    assert_eq!(adopted["spec"]["resourceRecords"], value("192.0.2.77"));
    for (name, _) in &specs {
        remove(&harness, &place(name)).await;
    }
    let left = records().await;
    assert!(!left.contains("<Type>A</Type>") && !left.contains("<Type>TXT</Type>"), "{left}");
}

/// Inline policies compared as text, a changed tag was added and then removed by its key, and a role that an instance
/// profile held could not be deleted without saying why.
#[tokio::test(flavor = "multi_thread")]
async fn role_documents_compare_by_meaning_tags_change_and_instance_profiles_are_named() {
    let aws = moto();
    let proxy = Proxy::start(&aws.address).await;
    let mut harness = Harness::start(settings(&proxy.address)).await;
    let place = at("iam", "roles", "default", "meaning");
    let inline = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:GetObject"],"Resource":"*"}]}"#;
    let spec = |trust: &str, inline: &str, boundary: &str, tag: &str| {
        json!({"name": "meaning", "assumeRolePolicyDocument": trust, "inlinePolicies": {"read": inline},
            "policies": ["arn:aws:iam::aws:policy/ReadOnlyAccess"], "permissionsBoundary": boundary,
            "tags": [{"key": "team", "value": tag}]})
    };
    let (wide, narrow) =
        ("arn:aws:iam::aws:policy/AdministratorAccess", "arn:aws:iam::aws:policy/ReadOnlyAccess");
    harness.apply(&place, "Role", json!({}), spec(TRUST, inline, wide, "a")).await;
    harness.synced(&place).await;
    // The same in other words: formatting, a string for a list of one.
    let writes = proxy.writes().len();
    let other = inline.replace("[\"s3:GetObject\"]", " \"s3:GetObject\" ");
    harness.apply(&place, "Role", json!({}), spec(&TRUST.replace("\":", "\": "), &other, wide, "a")).await;
    harness.launch();
    let calls = proxy.calls();
    harness
        .until("it was looked at", async || (proxy.calls() > calls + 5 && proxy.is_quiet()).then_some(()))
        .await;
    harness.synced(&place).await;
    assert_eq!(proxy.writes().len(), writes, "{:?}", proxy.writes());

    let trust = TRUST.replace("lambda", "edgelambda");
    harness.apply(&place, "Role", json!({}), spec(&trust, inline, narrow, "b")).await;
    let query = async |action: &str| {
        aws.query("iam", &format!("Action={action}&RoleName=meaning&Version=2010-05-08")).await.1
    };
    harness
        .until("trust, boundary and tag follow", async || {
            let (found, tags) = (query("GetRole").await, query("ListRoleTags").await);
            let arrived = found.contains("edgelambda")
                && found.contains("<PermissionsBoundaryArn>arn:aws:iam::aws:policy/ReadOnlyAccess");
            (arrived && tags.contains("<Value>b</Value>")).then_some(())
        })
        .await;
    harness.synced(&place).await;
    assert!(query("ListRoleTags").await.contains("<Value>b</Value>"), "and the tag stays");

    for action in [
        "CreateInstanceProfile&InstanceProfileName=foreign",
        "AddRoleToInstanceProfile&InstanceProfileName=foreign&RoleName=meaning",
    ] {
        aws.query("iam", &format!("Action={action}&Version=2010-05-08")).await;
    }
    harness.delete(&place).await;
    let held = harness.eventually(&place, |object| has(object, "ACK.Recoverable", "True")).await;
    let said = condition(&held, "Ready").expect("a condition");
    assert_eq!(said["message"], "the role is in use by instance profiles: foreign");
    assert_eq!(said["reason"], "DeletionFailed");
    for action in [
        "RemoveRoleFromInstanceProfile&InstanceProfileName=foreign&RoleName=meaning",
        "DeleteInstanceProfile&InstanceProfileName=foreign",
    ] {
        aws.query("iam", &format!("Action={action}&Version=2010-05-08")).await;
    }
    harness.gone(&place).await;
}

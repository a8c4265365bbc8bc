//! Kinds of the Bridge, on ministack: it has endpoints of domain names, conflicts and pending changes.

use serde_json::{Value, json};

use crate::{
    harness::{at, condition, has},
    proxy::Fault,
    stage::{GROUP, Stage, bridge, discovering, domain, reason, watch_states},
};

#[tokio::test(flavor = "multi_thread")]
async fn domain_with_a_created_certificate_passes_every_state_and_leaves_nothing() {
    let stage = Stage::start("100000000001").await;
    let harness = &stage.harness;
    let states = watch_states(harness, "apigatewaydomains", "APIGatewayDomain");
    // ACM waits for the validation record, which the simulator does not.
    stage.proxy.inject(
        "CertificateManager.DescribeCertificate",
        Fault::Replace("\"ISSUED\"", "\"PENDING_VALIDATION\""),
        usize::MAX,
    );
    let spec = json!({"domain": "api.example.com", "certificateStrategy": "create", "apiRef": {"name": "shop"},
        "dnsConfig": {"ttl": 60}});
    let place = stage.apply("shop", spec).await;
    let pending =
        harness.eventually(&place, |object| object["status"]["phase"] == "CERTIFICATE_PENDING").await;
    assert_eq!(reason(&pending, "CertificateReady"), "PendingValidation");
    let said =
        condition(&pending, "CertificateReady").expect("a condition")["message"].as_str().expect("text");
    assert!(
        said.contains("_acme-challenge.api.example.com.") && said.contains("next check in 30 s"),
        "{said}"
    );
    assert!(has(&pending, "Ready", "False") && has(&pending, "Degraded", "False"));
    assert!(stage.records().await.contains("_acme-challenge.api.example.com."));
    assert_eq!(stage.domain_names().await.len(), 0);
    stage.proxy.clear();

    let ready = stage.ready(&place).await;
    assert_eq!(ready["status"]["phase"], "READY");
    for kind in ["CertificateReady", "DomainNameReady", "APIMappingReady", "DNSReady", "Ready"] {
        assert!(has(&ready, kind, "True"), "{kind}: {ready:#}");
    }
    let endpoint = ready["status"]["domainNameEndpoint"].as_str().expect("an endpoint");
    assert_eq!(ready["status"]["dnsRecord"]["value"], endpoint);
    let records = stage.records().await;
    assert!(records.contains(endpoint) && records.contains("<TTL>60</TTL>"), "{records}");
    assert_eq!(stage.mappings("api.example.com").await[0]["stage"], "$default");
    let expected = [
        "CREATED",
        "CERTIFICATE_RESOLVING",
        "CERTIFICATE_PENDING",
        "CERTIFICATE_READY",
        "DOMAIN_CREATING",
        "DOMAIN_READY",
        "MAPPING_CREATING",
        "MAPPING_READY",
        "DNS_CREATING",
        "READY",
    ];
    harness
        .until("the watch has seen READY", async || {
            (states.lock().expect("states").last().map(String::as_str) == Some("READY")).then_some(())
        })
        .await;
    assert_eq!(*states.lock().expect("states"), expected);

    harness.delete(&place).await;
    harness.gone(&place).await;
    stage.assert_empty().await;
    assert_eq!(stage.certificates().await.len(), 0);
    harness.assert_allowed();
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_is_discovered_used_or_refused() {
    let stage = Stage::start("100000000002").await;
    let harness = &stage.harness;
    // None covers: waits, and says so after three looks.
    stage.request_certificate("other.example.com").await;
    let place = stage.apply("found", discovering("api.example.com")).await;
    let waiting = harness.eventually(&place, |object| has(object, "Degraded", "True")).await;
    assert_eq!(reason(&waiting, "CertificateReady"), "WaitingForCertificate");
    let wildcard = stage.request_certificate("*.example.com").await;
    let ready = stage.ready(&place).await;
    assert_eq!(ready["status"]["certificateArn"], wildcard);
    stage.delete(&place).await;
    stage.assert_empty().await;
    // A certificate that was only found is left.
    assert_eq!(stage.certificates().await.len(), 2);

    let using = |arn: &str| {
        json!({"domain": "use.example.com", "certificateStrategy": "use-arn", "certificateArn": arn,
            "apiRef": {"name": "shop"}})
    };
    let missing = wildcard.replace(&wildcard[wildcard.len() - 4..], "0000");
    let place = stage.apply("used", using(&missing)).await;
    let refused = harness.eventually(&place, |object| has(object, "Degraded", "True")).await;
    let said = condition(&refused, "CertificateReady").expect("a condition")["message"].clone();
    assert_eq!(said, format!("certificate not found: {missing}"));
    assert!(refused["status"]["nextRetryTime"].is_string());
    stage.apply("used", using(&wildcard.replace("us-east-1", "eu-west-1"))).await;
    harness.eventually(&place, |object| object.to_string().contains("is not in region us-east-1")).await;
    stage.apply("used", using(&wildcard)).await;
    let ready = stage.ready(&place).await;
    assert!(has(&ready, "Degraded", "False") && ready["status"]["nextRetryTime"].is_null());
    stage.delete(&place).await;
    stage.assert_empty().await;
    // The schema refuses an ARN that nobody uses.
    let mut wrong = discovering("x.example.com");
    wrong["certificateArn"] = json!(wildcard);
    let object = json!({"apiVersion": format!("{GROUP}/v1alpha1"), "kind": "APIGatewayDomain",
        "metadata": {"name": "wrong"}, "spec": wrong});
    let created = harness.call("POST", &domain("").path, Some(("application/json", &object))).await;
    assert!(
        created.is_err_and(|error| error.to_string().contains("certificateArn is required with use-arn"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_that_fails_is_degraded_with_its_reason() {
    let stage = Stage::start("100000000003").await;
    stage.request_certificate("api.example.com").await;
    let to = "\"FAILED\", \"FailureReason\": \"CAA_ERROR\"";
    stage.proxy.inject(
        "CertificateManager.DescribeCertificate",
        Fault::Replace("\"ISSUED\"", to),
        usize::MAX,
    );
    let (_, answer) = stage.aws.json("acm", "CertificateManager.ListCertificates", json!({})).await;
    let arn = answer["CertificateSummaryList"][0]["CertificateArn"].clone();
    let spec = json!({"domain": "api.example.com", "certificateStrategy": "use-arn", "certificateArn": arn,
        "apiRef": {"name": "shop"}});
    let place = stage.apply("failed", spec).await;
    let failed = stage.harness.eventually(&place, |object| has(object, "Degraded", "True")).await;
    let said = condition(&failed, "CertificateReady").expect("a condition")["message"].to_string();
    assert!(said.contains("certificate not issued") && said.contains("FAILED CAA_ERROR"), "{said}");
    stage.proxy.clear();
    stage.ready(&place).await;
    stage.delete(&place).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_and_delete_ten_times_leaves_nothing() {
    let stage = Stage::start("100000000004").await;
    let spec =
        json!({"domain": "api.example.com", "certificateStrategy": "create", "apiRef": {"name": "shop"}});
    for life in 0..10 {
        let place = stage.apply("again", spec.clone()).await;
        let ready = stage.ready(&place).await;
        assert_eq!(ready["status"]["ready"], json!(true), "life {life}");
        let children = ["domainnames", "apimappings"]
            .map(|plural| at("apigatewayv2", plural, "default", "api-example-com"));
        stage.delete(&place).await;
        stage.assert_empty().await;
        assert_eq!(stage.certificates().await.len(), 0, "life {life}");
        for child in &children {
            stage.harness.gone(child).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leftovers_of_an_earlier_life_are_taken_over_and_others_are_not_touched() {
    let stage = Stage::start("100000000005").await;
    let harness = &stage.harness;
    let certificate = stage.request_certificate("*.example.com").await;
    // Of an earlier life of default/mine: domain name and record.
    stage
        .create_domain_name(
            "mine.example.com",
            &certificate,
            json!({"services.k8s.aws/bridge-owner": "default/mine"}),
        )
        .await;
    stage.change_record("UPSERT", "mine.example.com.", "d-old.execute-api.us-east-1.amazonaws.com").await;
    let place = stage.apply("mine", discovering("mine.example.com")).await;
    let ready = stage.ready(&place).await;
    assert!(
        stage.records().await.contains(ready["status"]["domainNameEndpoint"].as_str().expect("an endpoint"))
    );
    assert!(!stage.records().await.contains("d-old"));
    stage.delete(&place).await;
    stage.assert_empty().await;

    // Somebody else's domain name.
    stage.create_domain_name("theirs.example.com", &certificate, json!({})).await;
    let place = stage.apply("theirs", discovering("theirs.example.com")).await;
    let refused =
        harness.eventually(&place, |object| reason(object, "DomainNameReady") == "DomainNameConflict").await;
    assert!(has(&refused, "Degraded", "True") && refused["status"]["ready"] == false);
    stage.delete(&place).await;
    assert_eq!(stage.domain_names().await.len(), 1);
    // Unless adoption is asked for.
    harness
        .apply(
            &place,
            "APIGatewayDomain",
            json!({"services.k8s.aws/adoption-policy": "adopt-or-create"}),
            discovering("theirs.example.com"),
        )
        .await;
    stage.ready(&place).await;
    stage.delete(&place).await;
    stage.assert_empty().await;

    // Somebody else's record.
    stage.change_record("UPSERT", "taken.example.com.", "elsewhere.example.net").await;
    let place = stage.apply("taken", discovering("taken.example.com")).await;
    let refused = harness.eventually(&place, |object| reason(object, "DNSReady") == "RecordConflict").await;
    let said = condition(&refused, "DNSReady").expect("a condition")["message"].to_string();
    assert!(said.contains("elsewhere.example.net"), "{said}");
    assert!(stage.records().await.contains("elsewhere.example.net"));
    let mut spec = discovering("taken.example.com");
    spec["dnsConfig"] = json!({"overwrite": true});
    stage.apply("taken", spec).await;
    stage.ready(&place).await;
    assert!(!stage.records().await.contains("elsewhere.example.net"));
    stage.delete(&place).await;
    stage.assert_empty().await;
}

/// The source counted any Conflict of a mapping as ready.
#[tokio::test(flavor = "multi_thread")]
async fn mapping_that_leads_elsewhere_is_not_ready_and_ours_is_led_back() {
    let stage = Stage::start("100000000006").await;
    let harness = &stage.harness;
    let certificate = stage.request_certificate("*.example.com").await;
    let (_, other) = stage
        .aws
        .rest("apigateway", "POST", "/v2/apis", Some(json!({"name": "other", "protocolType": "HTTP"})))
        .await;
    let other = other["apiId"].as_str().expect("an id").to_owned();
    let path = format!("/v2/apis/{other}/stages");
    stage
        .aws
        .rest("apigateway", "POST", &path, Some(json!({"stageName": "$default", "autoDeploy": true})))
        .await;
    // The domain name is ours by tag; its mapping was moved.
    let place = stage.apply("moved", discovering("moved.example.com")).await;
    let ready = stage.ready(&place).await;
    let id = ready["status"]["apiMappingId"].as_str().expect("an id").to_owned();
    let path = format!("/v2/domainnames/moved.example.com/apimappings/{id}");
    stage.aws.rest("apigateway", "PATCH", &path, Some(json!({"apiId": other, "stage": "$default"}))).await;
    harness
        .until("the mapping leads back", async || {
            let mappings = stage.mappings("moved.example.com").await;
            (mappings.len() == 1 && mappings[0]["apiId"] != other.as_str()).then_some(())
        })
        .await;
    stage.delete(&place).await;

    // The domain name is somebody else's; its mapping is not ours to move.
    stage
        .create_domain_name(
            "foreign.example.com",
            &certificate,
            json!({"services.k8s.aws/bridge-owner": "default/foreign"}),
        )
        .await;
    let path = "/v2/domainnames/foreign.example.com/apimappings";
    stage.aws.rest("apigateway", "POST", path, Some(json!({"apiId": other, "stage": "$default"}))).await;
    stage.proxy.inject(
        "GET /v2/domainnames/foreign.example.com ",
        Fault::Replace("default/foreign", "default/nobody"),
        usize::MAX,
    );
    let place = stage.apply("foreign", discovering("foreign.example.com")).await;
    harness.eventually(&place, |object| has(object, "Degraded", "True")).await;
    assert_eq!(stage.mappings("foreign.example.com").await[0]["apiId"], other.as_str());
    stage.delete(&place).await;
    assert_eq!(stage.mappings("foreign.example.com").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_of_every_phase_is_repaired() {
    let stage = Stage::start("100000000007").await;
    let harness = &stage.harness;
    stage.request_certificate("*.example.com").await;
    let place = stage.apply("drift", discovering("drift.example.com")).await;
    let ready = stage.ready(&place).await;
    let endpoint = ready["status"]["domainNameEndpoint"].as_str().expect("an endpoint").to_owned();

    stage.change_record("DELETE", "drift.example.com.", &endpoint).await;
    harness
        .until("the record is back", async || stage.records().await.contains(&endpoint).then_some(()))
        .await;

    let id = stage.mappings("drift.example.com").await[0]["apiMappingId"].as_str().expect("an id").to_owned();
    let path = format!("/v2/domainnames/drift.example.com/apimappings/{id}");
    stage.aws.rest("apigateway", "DELETE", &path, None).await;
    harness
        .until("the mapping is back", async || {
            (stage.mappings("drift.example.com").await.len() == 1).then_some(())
        })
        .await;

    stage.aws.rest("apigateway", "DELETE", "/v2/domainnames/drift.example.com", None).await;
    harness
        .until("domain name, mapping and record are back", async || {
            let object = harness.get(&place).await?;
            let new = object["status"]["domainNameEndpoint"].as_str()?.to_owned();
            let there = object["status"]["ready"] == true && stage.records().await.contains(&new);
            (there
                && stage.domain_names().await.len() == 1
                && stage.mappings("drift.example.com").await.len() == 1)
                .then_some(())
        })
        .await;

    // Somebody put another certificate on the domain name.
    let other = stage.request_certificate("drift.example.com").await;
    let body = json!({"domainNameConfigurations": [{"certificateArn": other, "endpointType": "REGIONAL", "securityPolicy": "TLS_1_2"}]});
    stage.aws.rest("apigateway", "PATCH", "/v2/domainnames/drift.example.com", Some(body)).await;
    let wanted = ready["status"]["certificateArn"].clone();
    harness
        .until("the certificate is back", async || {
            let names = stage.domain_names().await;
            (names[0]["domainNameConfigurations"][0]["certificateArn"] == wanted).then_some(())
        })
        .await;
    stage.ready(&place).await;
    stage.delete(&place).await;
    stage.assert_empty().await;
}

/// Every pass stamped new transition times and triggered the next.
#[tokio::test(flavor = "multi_thread")]
async fn ready_object_is_not_written_and_read_a_bounded_number_of_times() {
    let mut stage = Stage::start("100000000008").await;
    stage.request_certificate("*.example.com").await;
    let place = stage.apply("still", discovering("still.example.com")).await;
    stage.ready(&place).await;
    let settled = stage.harness.get(&place).await.expect("the object");
    let writes = stage.proxy.writes().len();
    for _ in 0..3 {
        stage.harness.launch();
        let before = stage.proxy.calls();
        let observer = stage.harness.observer.clone();
        let described = ("acm".to_owned(), "DescribeCertificate".to_owned(), "OK".to_owned());
        stage
            .harness
            .until("a pass is over", async || {
                let calls = observer.calls();
                let record = ("route53".to_owned(), "ListResourceRecordSets".to_owned(), "OK".to_owned());
                (calls.contains_key(&described) && calls.contains_key(&record)).then_some(())
            })
            .await;
        // Four of the domain; the rest are of API, Stage and the children, and who we are.
        assert!(stage.proxy.calls() - before <= 14, "{} calls", stage.proxy.calls() - before);
    }
    assert_eq!(stage.proxy.writes().len(), writes, "{:?}", stage.proxy.writes());
    let now = stage.harness.get(&place).await.expect("the object");
    assert_eq!(now["metadata"]["resourceVersion"], settled["metadata"]["resourceVersion"]);
    stage.delete(&place).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_spec_reaches_the_children() {
    let stage = Stage::start("100000000009").await;
    let harness = &stage.harness;
    stage.request_certificate("*.example.com").await;
    let live = at("apigatewayv2", "stages", "default", "live");
    let spec = json!({"apiRef": {"from": {"name": "shop"}}, "stageName": "live", "autoDeploy": true});
    harness.apply(&live, "Stage", json!({}), spec).await;
    harness.synced(&live).await;
    let place = stage.apply("changed", discovering("changed.example.com")).await;
    stage.ready(&place).await;
    let mut spec = discovering("changed.example.com");
    spec["stage"] = json!("live");
    spec["dnsConfig"] = json!({"ttl": 30});
    stage.apply("changed", spec).await;
    harness
        .until("stage and ttl follow", async || {
            let mappings = stage.mappings("changed.example.com").await;
            (mappings[0]["stage"] == "live" && stage.records().await.contains("<TTL>30</TTL>")).then_some(())
        })
        .await;
    let child = harness.get(&at("apigatewayv2", "apimappings", "default", "changed-example-com")).await;
    let child = child.expect("a child");
    assert_eq!(child["spec"]["stage"], "live");
    assert_eq!(child["metadata"]["labels"]["app.kubernetes.io/created-by"], "ack-bridge");
    assert_eq!(child["metadata"]["annotations"]["services.k8s.aws/deletion-policy"], "retain");
    assert_eq!(child["metadata"]["ownerReferences"][0]["controller"], true);
    stage.delete(&place).await;
    stage.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_clean_up_does_not_block_and_says_what_is_left() {
    let stage = Stage::start("100000000010").await;
    stage.request_certificate("*.example.com").await;
    let place = stage.apply("denied", discovering("denied.example.com")).await;
    stage.ready(&place).await;
    stage.proxy.inject("/rrset", Fault::Answer(403, "AccessDenied"), usize::MAX);
    stage.delete(&place).await;
    // All the rest is gone; the record is left, and an event says so.
    assert_eq!(stage.domain_names().await.len(), 0);
    assert!(stage.records().await.contains("denied.example.com."));
    stage
        .harness
        .until("an event tells of it", async || {
            stage.harness.events("denied").await.contains(&"LeftBehind".to_owned()).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn throttling_is_silent_for_two_tries_and_denial_is_degraded_until_granted() {
    let stage = Stage::start("100000000011").await;
    let harness = &stage.harness;
    stage.request_certificate("*.example.com").await;
    // A read is tried twice in a pass: four answers are two passes.
    stage.proxy.inject("CertificateManager.ListCertificates", Fault::Answer(400, "ThrottlingException"), 4);
    let states = watch_states(harness, "apigatewaydomains", "APIGatewayDomain");
    let place = stage.apply("throttled", discovering("throttled.example.com")).await;
    let ready = stage.ready(&place).await;
    let since = condition(&ready, "Degraded").expect("a condition")["lastTransitionTime"].clone();
    assert_eq!(condition(&ready, "Degraded").expect("a condition")["status"], "False");
    assert!(since.is_string() && !states.lock().expect("states").is_empty());
    stage.delete(&place).await;

    stage.proxy.inject("GET /v2/domainnames", Fault::Answer(403, "AccessDeniedException"), usize::MAX);
    let place = stage.apply("refused", discovering("refused.example.com")).await;
    let denied = harness.eventually(&place, |object| has(object, "Degraded", "True")).await;
    let said = condition(&denied, "DomainNameReady").expect("a condition")["message"].to_string();
    assert!(said.contains("ApiGatewayV2: GetDomainName") && said.contains("AccessDeniedException"), "{said}");
    stage.proxy.clear();
    stage.ready(&place).await;
    stage.delete(&place).await;
    stage.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn static_site_serves_its_pages_and_leaves_nothing() {
    let stage = Stage::start("100000000015").await;
    let (harness, aws) = (&stage.harness, &stage.aws);
    let states = watch_states(harness, "staticsites", "StaticSite");
    let place = bridge("staticsites", "docs");
    let apply = async |pages: Value| {
        let spec = json!({"domain": "docs.example.com", "pages": pages});
        harness.apply(&place, "StaticSite", json!({}), spec).await;
    };
    apply(json!({"index.html": "<h1>one</h1>", "deep/page.css": "p {}"})).await;
    let ready = stage.ready(&place).await;
    assert_eq!(ready["status"]["endpoint"], "docs.example.com.s3-website-us-east-1.amazonaws.com");
    let get = async |key: &str| aws.send("s3", "GET", &format!("/docs.example.com/{key}"), &[], "").await;
    assert_eq!(get("index.html").await, (200, "<h1>one</h1>".to_owned()));
    assert_eq!(get("deep/page.css").await.0, 200);
    assert!(stage.records().await.contains("docs.example.com.s3-website-us-east-1.amazonaws.com"));
    let expected = [
        "CREATED",
        "BUCKET_CREATING",
        "BUCKET_READY",
        "CONTENT_WRITING",
        "CONTENT_READY",
        "DNS_CREATING",
        "READY",
    ];
    harness
        .until("the watch has seen READY", async || {
            (states.lock().expect("states").last().map(String::as_str) == Some("READY")).then_some(())
        })
        .await;
    assert_eq!(*states.lock().expect("states"), expected);

    apply(json!({"index.html": "<h1>two</h1>"})).await;
    harness
        .until("the pages follow", async || {
            (get("index.html").await.1 == "<h1>two</h1>" && get("deep/page.css").await.0 == 404).then_some(())
        })
        .await;
    // Somebody changes a page.
    aws.send("s3", "PUT", "/docs.example.com/index.html", &[], "changed").await;
    harness
        .until("the page is back", async || (get("index.html").await.1 == "<h1>two</h1>").then_some(()))
        .await;
    stage.ready(&place).await;
    stage.delete(&place).await;
    stage.assert_empty().await;
    assert_eq!(aws.send("s3", "HEAD", "/docs.example.com", &[], "").await.0, 404);
    harness.assert_allowed();
}

//! APIGatewayDomain: certificates that end, the apex of a zone, a thousand passes.

use serde_json::{Value, json};

use crate::{
    harness::{condition, has},
    proxy::Fault,
    stage::{Stage, discovering, reason},
};

/// Makes ACM report a certificate as expired.
fn expire(stage: &Stage, arn: &str) {
    let fault = Fault::Replace("\"ISSUED\"", "\"EXPIRED\"");
    stage.proxy.inject_for("CertificateManager.DescribeCertificate", arn, fault, usize::MAX);
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_certificate_is_not_taken_and_one_that_expires_is_replaced() {
    let stage = Stage::start("100000000016").await;
    let harness = &stage.harness;
    // The exact name would be preferred.
    let exact = stage.request_certificate("api.example.com").await;
    expire(&stage, &exact);
    let place = stage.apply("expiring", discovering("api.example.com")).await;
    let waiting = harness.eventually(&place, |object| has(object, "Degraded", "True")).await;
    assert_eq!(reason(&waiting, "CertificateReady"), "WaitingForCertificate");
    assert_eq!(stage.domain_names().await.len(), 0);
    let wildcard = stage.request_certificate("*.example.com").await;
    let ready = stage.ready(&place).await;
    assert_eq!(ready["status"]["certificateArn"], wildcard);

    // The one in use expires; the next drift check finds it.
    expire(&stage, &wildcard);
    harness
        .eventually(&place, |object| {
            object["status"]["ready"] == false
                && reason(object, "CertificateReady") == "WaitingForCertificate"
        })
        .await;
    let renewed = stage.request_certificate("*.example.com").await;
    let ready =
        harness.eventually(&place, |object| object["status"]["certificateArn"] == renewed.as_str()).await;
    assert_ne!(ready["status"]["certificateArn"], wildcard);
    stage.ready(&place).await;
    harness
        .until("the domain name has the new certificate", async || {
            let names = stage.domain_names().await;
            (names[0]["domainNameConfigurations"][0]["certificateArn"] == renewed.as_str()).then_some(())
        })
        .await;
    stage.delete(&place).await;

    // One that is named is refused.
    let spec = json!({"domain": "api.example.com", "certificateStrategy": "use-arn", "certificateArn": exact,
        "apiRef": {"name": "shop"}});
    let place = stage.apply("named", spec).await;
    let refused = harness.eventually(&place, |object| has(object, "Degraded", "True")).await;
    let message = condition(&refused, "CertificateReady").expect("a condition")["message"].to_string();
    assert!(message.contains("certificate not issued") && message.contains("EXPIRED"), "{message}");
    stage.delete(&place).await;
    stage.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn apex_of_a_zone_gets_alias_records_of_both_families() {
    let stage = Stage::start("100000000017").await;
    stage.request_certificate("example.com").await;
    let place = stage.apply("apex", discovering("example.com")).await;
    let ready = stage.ready(&place).await;
    let endpoint = ready["status"]["domainNameEndpoint"].as_str().expect("an endpoint").to_owned();
    let target_zone = ready["status"]["hostedZoneId"].as_str().expect("a zone");
    assert_eq!(ready["status"]["dnsRecord"]["type"], "ALIAS");
    assert_eq!(ready["status"]["dnsRecord"]["value"], endpoint);
    assert_eq!(ready["status"]["dnsRecord"]["ttl"], Value::Null);
    let aliases = async || {
        let records = stage.records().await;
        let sets = records.split("<ResourceRecordSet>").skip(1);
        let own = sets.filter(|set| set.contains("AliasTarget") && set.contains(&endpoint));
        let kind = |set: &str| set.split("<Type>").nth(1)?.split('<').next().map(str::to_owned);
        let mut kinds: Vec<String> =
            own.filter(|set| set.contains(target_zone) && !set.contains("<TTL>")).filter_map(kind).collect();
        kinds.sort();
        kinds
    };
    assert_eq!(aliases().await, ["A", "AAAA"]);
    assert!(!stage.records().await.contains("CNAME"), "no CNAME may stand at the apex");
    // The zone's own records stay.
    let records = stage.records().await;
    assert!(records.contains("<Type>NS</Type>") && records.contains("<Type>SOA</Type>"), "{records}");
    stage.delete(&place).await;
    stage.assert_empty().await;
    let records = stage.records().await;
    assert!(records.contains("<Type>NS</Type>") && records.contains("<Type>SOA</Type>"), "{records}");
}

/// Status was written between phases and with new times on every pass.
#[tokio::test(flavor = "multi_thread")]
async fn thousand_passes_over_a_ready_object_write_nothing() {
    const PASSES: u64 = 1_000;
    let mut stage = Stage::start("100000000018").await;
    stage.request_certificate("*.example.com").await;
    let place = stage.apply("steady", discovering("steady.example.com")).await;
    stage.ready(&place).await;
    // The drift check of 300 s comes after 3 ms.
    stage.harness.settings.wait_scale = 0.000_01;
    stage.harness.settings.kinds = vec!["APIGatewayDomain".to_owned()];
    stage.harness.launch();
    let settled = stage.harness.get(&place).await.expect("the object");
    let (writes, events) = (stage.proxy.writes().len(), stage.harness.events("steady").await.len());
    let observer = stage.harness.observer.clone();
    let call = |service: &str, operation: &str| (service.to_owned(), operation.to_owned(), "OK".to_owned());
    let keys = [call("acm", "DescribeCertificate"), call("route53", "ListResourceRecordSets")];
    let passes = || {
        let calls = observer.calls();
        keys.iter().map(|key| calls.get(key).copied().unwrap_or_default()).min().unwrap_or_default()
    };
    for hundreds in 1..=PASSES / 100 {
        stage.harness.until("a hundred passes", async || (passes() >= hundreds * 100).then_some(())).await;
        let now = stage.harness.get(&place).await.expect("the object");
        assert_eq!(now["metadata"]["resourceVersion"], settled["metadata"]["resourceVersion"]);
    }
    assert_eq!(stage.proxy.writes().len(), writes, "{:?}", stage.proxy.writes());
    assert_eq!(stage.harness.events("steady").await.len(), events);
    stage.harness.settings.wait_scale = 0.02;
    stage.harness.settings.kinds = Vec::new();
    stage.harness.launch();
    stage.delete(&place).await;
    stage.assert_empty().await;
}

/// Any conflict counted as "exists already", also where this account has no such domain name.
#[tokio::test(flavor = "multi_thread")]
async fn domain_name_of_another_account_is_refused_until_that_lets_go() {
    let stage = Stage::start("100000000021").await;
    stage.request_certificate("*.example.com").await;
    let held = "The domain name you provided already exists.";
    stage.proxy.inject("POST /v2/domainnames ", Fault::Say(409, "ConflictException", held), usize::MAX);
    let place = stage.apply("held", discovering("held.example.com")).await;
    let refused = stage
        .harness
        .eventually(&place, |object| reason(object, "DomainNameReady") == "DomainNameConflict")
        .await;
    assert!(has(&refused, "Degraded", "True") && refused["status"]["ready"] == false);
    let said = condition(&refused, "DomainNameReady").expect("a condition")["message"].to_string();
    assert!(said.contains("held by another account or region") && said.contains(held), "{said}");
    assert!(!stage.records().await.contains("held.example.com"), "no record leads anywhere");
    stage.proxy.clear();
    stage.ready(&place).await;
    stage.delete(&place).await;
    stage.assert_empty().await;
}

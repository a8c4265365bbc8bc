//! DomainName and APIMapping: create, adopt, update, drift, delete. On ministack, which refuses what AWS refuses.

use serde_json::{Value, json};

use crate::{
    harness::{Harness, at, condition, has, of_account},
    proxy::{Fault, Proxy},
    simulators::{Simulator, ministack},
};

async fn certificate(aws: &Simulator) -> String {
    let body = json!({"DomainName": "*.example.com", "ValidationMethod": "DNS"});
    let (_, answer) = aws.json("acm", "CertificateManager.RequestCertificate", body).await;
    answer["CertificateArn"].as_str().expect("an ARN").to_owned()
}

fn configurations(certificate: &str, field: &str) -> Value {
    json!([{field: certificate, "endpointType": "REGIONAL", "securityPolicy": "TLS_1_2"}])
}

async fn create_domain(aws: &Simulator, name: &str, certificate: &str) {
    let body = json!({"domainName": name, "domainNameConfigurations": configurations(certificate, "certificateArn")});
    let (code, answer) = aws.rest("apigateway", "POST", "/v2/domainnames", Some(body)).await;
    assert_eq!(code, 201, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn domain_name_waits_for_its_certificate_follows_and_is_repaired() {
    let account = "400000000001";
    let aws = ministack(account);
    let proxy = Proxy::start(&aws.address).await;
    let mut harness = Harness::start(of_account(&proxy.address, account)).await;
    let (first, second) = (certificate(&aws).await, certificate(&aws).await);
    let place = at("apigatewayv2", "domainnames", "default", "api");
    let spec = |certificate: &str, team: &str| {
        json!({"domainName": "api.example.com", "tags": {"team": team},
            "domainNameConfigurations": configurations(certificate, "certificateARN")})
    };
    // AWS refuses a certificate that is not issued, which the simulator does not.
    let pending = Fault::Replace("\"ISSUED\"", "\"PENDING_VALIDATION\"");
    proxy.inject("CertificateManager.DescribeCertificate", pending, usize::MAX);
    proxy.inject("POST /v2/domainnames", Fault::Answer(400, "BadRequestException"), usize::MAX);
    harness.apply(&place, "DomainName", json!({}), spec(&first, "a")).await;
    let waiting = harness.eventually(&place, |object| has(object, "ACK.ResourceSynced", "False")).await;
    let said = &condition(&waiting, "ACK.ResourceSynced").expect("a condition")["message"];
    assert_eq!(said, &json!(format!("certificate {first} is not issued yet")));
    assert!(condition(&waiting, "ACK.Terminal").is_none());
    proxy.clear();
    let synced = harness.synced(&place).await;
    let status = &synced["status"];
    assert_eq!(
        status["ackResourceMetadata"]["arn"],
        "arn:aws:apigateway:us-east-1::/domainnames/api.example.com"
    );
    let configuration = &status["domainNameConfigurations"][0];
    assert_eq!(configuration["domainNameStatus"], "AVAILABLE");
    assert!(configuration["apiGatewayDomainName"].is_string() && configuration["hostedZoneID"].is_string());

    let read = async || aws.rest("apigateway", "GET", "/v2/domainnames/api.example.com", None).await;
    let uses = |answer: &Value, certificate: &str| {
        answer["domainNameConfigurations"][0]["certificateArn"] == certificate
    };
    harness.apply(&place, "DomainName", json!({}), spec(&second, "b")).await;
    harness
        .until("certificate and tag follow", async || {
            let (_, found) = read().await;
            (uses(&found, &second) && found["tags"]["team"] == "b").then_some(())
        })
        .await;
    // Somebody sets the old certificate; the next look repairs it and says so.
    let drift = json!({"domainNameConfigurations": configurations(&first, "certificateArn")});
    aws.rest("apigateway", "PATCH", "/v2/domainnames/api.example.com", Some(drift)).await;
    assert!(uses(&read().await.1, &first));
    harness.launch();
    harness.until("drift is repaired", async || uses(&read().await.1, &second).then_some(())).await;
    harness
        .until("an event tells of it", async || {
            harness.events("api").await.contains(&"Updated".to_owned()).then_some(())
        })
        .await;
    harness.synced(&place).await;

    harness.patch(&place, json!({"spec": {"domainName": "other.example.com"}})).await;
    let refused = harness.eventually(&place, |object| has(object, "ACK.Terminal", "True")).await;
    let said = &condition(&refused, "ACK.Terminal").expect("a condition")["message"];
    assert_eq!(said, "domainName is immutable; the AWS resource is api.example.com");
    harness.delete(&place).await;
    harness.gone(&place).await;
    assert_eq!(read().await.0, 404);
    harness.assert_allowed();
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_domain_name_is_refused_and_adopted_with_and_without_a_spec() {
    let account = "400000000002";
    let aws = ministack(account);
    let proxy = Proxy::start(&aws.address).await;
    let harness = Harness::start(of_account(&proxy.address, account)).await;
    let arn = certificate(&aws).await;
    for name in ["one.example.com", "two.example.com"] {
        create_domain(&aws, name, &arn).await;
    }
    let place = at("apigatewayv2", "domainnames", "default", "one");
    let spec = json!({"domainName": "one.example.com", "domainNameConfigurations": configurations(&arn, "certificateARN")});
    harness.apply(&place, "DomainName", json!({}), spec.clone()).await;
    let refused = harness.eventually(&place, |object| has(object, "ACK.Terminal", "True")).await;
    assert_eq!(
        condition(&refused, "ACK.Terminal").expect("a condition")["message"],
        "Resource already exists"
    );
    let policy = json!({"services.k8s.aws/adoption-policy": "adopt-or-create"});
    harness.apply(&place, "DomainName", policy, spec).await;
    harness.synced(&place).await;

    let other = at("apigatewayv2", "domainnames", "default", "two");
    let annotations = json!({"services.k8s.aws/adoption-policy": "adopt",
        "services.k8s.aws/adoption-fields": r#"{"domainName": "two.example.com"}"#});
    let object = json!({"apiVersion": "apigatewayv2.services.k8s.aws/v1alpha1", "kind": "DomainName",
        "metadata": {"name": "two", "annotations": annotations}});
    let path = format!("{}/two?fieldManager=user&force=true", other.path);
    harness.call("PATCH", &path, Some(("application/apply-patch+yaml", &object))).await.expect("applied");
    let adopted = harness.synced(&other).await;
    assert_eq!(adopted["spec"]["domainName"], "two.example.com");
    assert_eq!(adopted["spec"]["domainNameConfigurations"][0]["certificateARN"], json!(arn));
    assert_eq!(proxy.writes(), Vec::<String>::new(), "adoption changes nothing in AWS");
    for place in [&place, &other] {
        harness.delete(place).await;
        harness.gone(place).await;
    }
    let (_, left) = aws.rest("apigateway", "GET", "/v2/domainnames", None).await;
    assert_eq!(left["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn api_mapping_waits_for_its_stage_follows_is_repaired_and_adopted() {
    let account = "400000000003";
    let aws = ministack(account);
    let mut harness = Harness::start(of_account(&aws.address, account)).await;
    create_domain(&aws, "api.example.com", &certificate(&aws).await).await;
    let place = |plural: &str, name: &str| at("apigatewayv2", plural, "default", name);
    let api = place("apis", "shop");
    harness.apply(&api, "API", json!({}), json!({"name": "shop", "protocolType": "HTTP"})).await;
    let mapping = place("apimappings", "shop");
    let of_api = json!({"from": {"name": "shop"}});
    let spec = |stage: &str| json!({"apiRef": of_api, "domainName": "api.example.com", "stage": stage});
    harness.apply(&mapping, "APIMapping", json!({}), spec("one")).await;
    // No Stage yet: that is not the end.
    let waiting = harness.eventually(&mapping, |object| has(object, "ACK.ResourceSynced", "False")).await;
    assert!(condition(&waiting, "ACK.Terminal").is_none(), "{waiting:#}");
    for stage in ["one", "two"] {
        let spec = json!({"apiRef": of_api, "stageName": stage, "autoDeploy": true});
        harness.apply(&place("stages", stage), "Stage", json!({}), spec).await;
    }
    let synced = harness.synced(&mapping).await;
    let id = synced["status"]["apiMappingID"].as_str().expect("an id").to_owned();
    let mappings = async || {
        let (_, answer) =
            aws.rest("apigateway", "GET", "/v2/domainnames/api.example.com/apimappings", None).await;
        answer["items"].as_array().cloned().unwrap_or_default()
    };
    let leads_to = async |stage: &str| {
        let all = mappings().await;
        (all.len() == 1 && all[0]["stage"] == stage).then_some(())
    };
    assert!(leads_to("one").await.is_some());
    harness.apply(&mapping, "APIMapping", json!({}), spec("two")).await;
    harness.until("the stage follows", async || leads_to("two").await).await;
    // Somebody moves it.
    let path = format!("/v2/domainnames/api.example.com/apimappings/{id}");
    let api_id = mappings().await[0]["apiId"].clone();
    aws.rest("apigateway", "PATCH", &path, Some(json!({"apiId": api_id, "stage": "one"}))).await;
    assert!(leads_to("one").await.is_some());
    harness.launch();
    harness.until("drift is repaired", async || leads_to("two").await).await;
    harness.synced(&mapping).await;

    // A second object for the same key is refused: the mapping is another object's.
    let double = place("apimappings", "double");
    harness.apply(&double, "APIMapping", json!({}), spec("one")).await;
    let refused = harness.eventually(&double, |object| has(object, "ACK.Recoverable", "True")).await;
    let said = condition(&refused, "ACK.Recoverable").expect("a condition")["message"].to_string();
    assert!(said.contains("ConflictException"), "{said}");
    harness.delete(&double).await;
    harness.gone(&double).await;
    assert!(leads_to("two").await.is_some());

    // Let go and adopted again, by its identifier.
    harness
        .patch(&mapping, json!({"metadata": {"annotations": {"services.k8s.aws/deletion-policy": "retain"}}}))
        .await;
    harness.delete(&mapping).await;
    harness.gone(&mapping).await;
    assert!(leads_to("two").await.is_some());
    let fields = json!({"apiMappingID": id, "domainName": "api.example.com"}).to_string();
    let annotations = json!({"services.k8s.aws/adoption-policy": "adopt-or-create", "services.k8s.aws/adoption-fields": fields});
    harness.apply(&mapping, "APIMapping", annotations, spec("two")).await;
    let adopted = harness.synced(&mapping).await;
    assert_eq!(adopted["status"]["apiMappingID"], json!(id));
    harness.delete(&mapping).await;
    harness.gone(&mapping).await;
    assert_eq!(mappings().await, Vec::<Value>::new());
    harness.assert_allowed();
}

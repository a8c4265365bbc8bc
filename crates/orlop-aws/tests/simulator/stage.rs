//! An account of ministack with a zone and an API, for the kinds of the Bridge.

use std::sync::{Arc, Mutex};

use futures_util::TryStreamExt as _;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, WatchEvent, WatchParams},
};
use serde_json::{Value, json};

use crate::{
    harness::{At, Harness, at, condition, of_account},
    proxy::Proxy,
    simulators::{Simulator, ministack},
};

pub(crate) const GROUP: &str = "bridge.ack.tubi.internal";

/// Returns the place of an object of the Bridge.
pub(crate) fn bridge(plural: &str, name: &str) -> At {
    let path = format!("/apis/{GROUP}/v1alpha1/namespaces/default/{plural}");
    At { path, name: name.to_owned() }
}

pub(crate) fn domain(name: &str) -> At {
    bridge("apigatewaydomains", name)
}

pub(crate) struct Stage {
    pub(crate) aws: Simulator,
    pub(crate) proxy: Proxy,
    pub(crate) harness: Harness,
    pub(crate) zone: String,
}

impl Stage {
    /// Starts controllers on an account with a zone `example.com`, an API and its stage.
    pub(crate) async fn start(account: &str) -> Self {
        let aws = ministack(account);
        let proxy = Proxy::start(&aws.address).await;
        let harness = Harness::start(of_account(&proxy.address, account)).await;
        let zone = create_zone(&aws, "example.com").await;
        let api = at("apigatewayv2", "apis", "default", "shop");
        harness.apply(&api, "API", json!({}), json!({"name": "shop", "protocolType": "HTTP"})).await;
        let stage = at("apigatewayv2", "stages", "default", "shop");
        let spec = json!({"apiRef": {"from": {"name": "shop"}}, "stageName": "$default", "autoDeploy": true});
        harness.apply(&stage, "Stage", json!({}), spec).await;
        harness.synced(&stage).await;
        Self { aws, proxy, harness, zone }
    }

    pub(crate) async fn apply(&self, name: &str, spec: Value) -> At {
        let place = domain(name);
        self.harness.apply(&place, "APIGatewayDomain", json!({}), spec).await;
        place
    }

    pub(crate) async fn ready(&self, place: &At) -> Value {
        self.harness.eventually(place, |object| object["status"]["ready"] == true).await
    }

    pub(crate) async fn records(&self) -> String {
        records(&self.aws, &self.zone).await
    }

    pub(crate) async fn certificates(&self) -> Vec<Value> {
        let (_, answer) = self.aws.json("acm", "CertificateManager.ListCertificates", json!({})).await;
        answer["CertificateSummaryList"].as_array().cloned().unwrap_or_default()
    }

    pub(crate) async fn domain_names(&self) -> Vec<Value> {
        let (_, answer) = self.aws.rest("apigateway", "GET", "/v2/domainnames", None).await;
        answer["items"].as_array().cloned().unwrap_or_default()
    }

    pub(crate) async fn mappings(&self, domain: &str) -> Vec<Value> {
        let path = format!("/v2/domainnames/{domain}/apimappings");
        let (_, answer) = self.aws.rest("apigateway", "GET", &path, None).await;
        answer["items"].as_array().cloned().unwrap_or_default()
    }

    /// Makes a domain name behind the Bridge's back.
    pub(crate) async fn create_domain_name(&self, domain: &str, certificate: &str, tags: Value) {
        let body = json!({"domainName": domain, "tags": tags, "domainNameConfigurations": [
            {"certificateArn": certificate, "endpointType": "REGIONAL", "securityPolicy": "TLS_1_2"}]});
        let (code, answer) = self.aws.rest("apigateway", "POST", "/v2/domainnames", Some(body)).await;
        assert_eq!(code, 201, "{answer}");
    }

    pub(crate) async fn change_record(&self, action: &str, name: &str, value: &str) {
        let body = format!(
            "<ChangeResourceRecordSetsRequest xmlns=\"https://route53.amazonaws.com/doc/2013-04-01/\"><ChangeBatch><Changes>\
             <Change><Action>{action}</Action><ResourceRecordSet><Name>{name}</Name><Type>CNAME</Type><TTL>300</TTL>\
             <ResourceRecords><ResourceRecord><Value>{value}</Value></ResourceRecord></ResourceRecords></ResourceRecordSet>\
             </Change></Changes></ChangeBatch></ChangeResourceRecordSetsRequest>"
        );
        let path = format!("/2013-04-01/hostedzone/{}/rrset", self.zone);
        let (code, answer) = self.aws.send("route53", "POST", &path, &[], &body).await;
        assert_eq!(code, 200, "{answer}");
    }

    pub(crate) async fn delete(&self, place: &At) {
        self.harness.delete(place).await;
        self.harness.gone(place).await;
    }

    pub(crate) async fn request_certificate(&self, domain: &str) -> String {
        let body = json!({"DomainName": domain, "ValidationMethod": "DNS"});
        let (_, answer) = self.aws.json("acm", "CertificateManager.RequestCertificate", body).await;
        answer["CertificateArn"].as_str().expect("an ARN").to_owned()
    }

    /// Asserts that AWS has nothing of a domain's any more.
    pub(crate) async fn assert_empty(&self) {
        assert_eq!(self.domain_names().await, Vec::<Value>::new());
        let records = self.records().await;
        assert!(!records.contains("CNAME") && !records.contains("AliasTarget"), "{records}");
    }
}

pub(crate) async fn create_zone(aws: &Simulator, name: &str) -> String {
    let body = format!(
        "<CreateHostedZoneRequest xmlns=\"https://route53.amazonaws.com/doc/2013-04-01/\"><Name>{name}</Name>\
         <CallerReference>{name}</CallerReference></CreateHostedZoneRequest>"
    );
    let (_, answer) = aws.send("route53", "POST", "/2013-04-01/hostedzone", &[], &body).await;
    let id = answer.split("<Id>/hostedzone/").nth(1).and_then(|rest| rest.split('<').next());
    id.expect("the id of a zone").to_owned()
}

async fn records(aws: &Simulator, zone: &str) -> String {
    aws.send("route53", "GET", &format!("/2013-04-01/hostedzone/{zone}/rrset"), &[], "").await.1
}

/// Notes every `status.phase` that an object shows, in order.
pub(crate) fn watch_states(harness: &Harness, plural: &str, kind: &str) -> Arc<Mutex<Vec<String>>> {
    let resource = ApiResource {
        group: GROUP.to_owned(),
        version: "v1alpha1".to_owned(),
        api_version: format!("{GROUP}/v1alpha1"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    };
    let api: Api<DynamicObject> = Api::namespaced_with(harness.client.clone(), "default", &resource);
    let states = Arc::new(Mutex::new(Vec::new()));
    let seen = states.clone();
    tokio::spawn(async move {
        let events = api.watch(&WatchParams::default(), "0").await.expect("a watch");
        let mut events = std::pin::pin!(events);
        while let Ok(Some(event)) = events.try_next().await {
            if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event
                && let Some(state) = object.data["status"]["phase"].as_str()
            {
                let mut seen = seen.lock().expect("states");
                if seen.last().is_none_or(|last| last != state) {
                    seen.push(state.to_owned());
                }
            }
        }
    });
    states
}

pub(crate) fn reason<'a>(object: &'a Value, kind: &str) -> &'a str {
    condition(object, kind).and_then(|condition| condition["reason"].as_str()).unwrap_or_default()
}

pub(crate) fn discovering(domain: &str) -> Value {
    json!({"domain": domain, "certificateStrategy": "discover", "apiRef": {"name": "shop"}})
}

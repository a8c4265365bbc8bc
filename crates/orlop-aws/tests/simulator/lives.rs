//! Lives that together make every call of a kind.

use std::pin::Pin;

use serde_json::{Value, json};

use crate::{
    cases::{Case, prepare},
    harness::{Harness, at},
    kinds::{TRUST, ZIP},
    proxy::Fault,
    simulators::Simulator,
    stage::{bridge, create_zone},
};

type Preparation<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A life: an object, what happens to its calls, and a change of it.
pub(crate) struct Life {
    pub(crate) case: Case,
    pub(crate) change: Option<Value>,
    pub(crate) faults: Vec<(&'static str, Fault, usize)>,
    /// Makes what the life finds.
    pub(crate) before: for<'a> fn(&'a Simulator, &'a Harness) -> Preparation<'a>,
}

fn nothing<'a>(_: &'a Simulator, _: &'a Harness) -> Preparation<'a> {
    Box::pin(async {})
}

impl Life {
    fn of(mut case: Case) -> Self {
        let change = case.change.take().map(|(change, _)| change);
        Self { case, change, faults: Vec::new(), before: nothing }
    }

    fn with_fault(mut self, matching: &'static str, fault: Fault, times: usize) -> Self {
        self.faults.push((matching, fault, times));
        self
    }
}

fn life(service: &str, plural: &str, kind: &'static str, spec: Value, change: Value) -> Life {
    let change = Some(change).filter(|change| !change.is_null());
    let case = Case { place: at(service, plural, "default", "more"), kind, spec, change: None };
    Life { case, change, faults: Vec::new(), before: nothing }
}

/// Returns the lives of a kind.
pub(crate) async fn lives_of(kind: &str, aws: &Simulator, harness: &Harness, account: &str) -> Vec<Life> {
    let first = prepare(kind, aws, harness, account).await;
    // The children of a domain differ from life to life; so does what a domain name refers to.
    let spec = first.spec.clone();
    let mut lives = vec![Life::of(first)];
    match kind {
        "Function" => {
            let spec = json!({"name": "more", "code": {"zipFile": ZIP}, "runtime": "python3.12",
                "handler": "main.handler", "role": format!("arn:aws:iam::{account}:role/any"),
                "codeSigningConfigARN": format!("arn:aws:lambda:us-east-1:{account}:code-signing-config:csc-1")});
            // Another archive, and no signing.
            let change = json!({"codeSigningConfigARN": null, "code": {"zipFile": "UEsFBgAAAAAAAAAAAAAAAAAAAAAAAAA="}});
            lives.push(life("lambda", "functions", "Function", spec, change));
        }
        "Alias" => {
            let spec = json!({"name": "more", "functionName": "given", "functionVersion": "1",
                "provisionedConcurrencyConfig": {"provisionedConcurrentExecutions": 1}});
            let (code, said) =
                aws.rest("lambda", "POST", "/2015-03-31/functions/given/versions", Some(json!({}))).await;
            assert_eq!(code, 201, "{said}");
            lives.push(life(
                "lambda",
                "aliases",
                "Alias",
                spec,
                json!({"provisionedConcurrencyConfig": null}),
            ));
        }
        "API" => {
            let body = |title: &str| {
                json!({"openapi": "3.0.1", "info": {"title": title, "version": "1"}, "paths": {}}).to_string()
            };
            let spec = json!({"body": body("one")});
            lives.push(life("apigatewayv2", "apis", "API", spec, json!({"body": body("two")})));
        }
        "DomainName" => {
            let again = life("apigatewayv2", "domainnames", "DomainName", spec, Value::Null);
            let pending = Fault::Replace("\"ISSUED\"", "\"PENDING_VALIDATION\"");
            lives.push(
                again
                    .with_fault("POST /v2/domainnames", Fault::Answer(400, "BadRequestException"), 1)
                    .with_fault("CertificateManager.DescribeCertificate", pending, 1),
            );
        }
        "Certificate" => lives.extend(certificates(harness).await),
        "HostedZone" => lives.extend(zones()),
        "Bucket" => lives.push(bucket(aws, account).await),
        "Table" => {
            // A policy that comes later; one of the creation needs no call of its own.
            let mut later = table(account);
            let policy = later.case.spec.as_object_mut().and_then(|spec| spec.remove("resourcePolicy"));
            later.change = Some(json!({"resourcePolicy": policy}));
            lives.extend([later, table(account)]);
        }
        "Role" => {
            let managed = "arn:aws:iam::aws:policy/ReadOnlyAccess";
            let spec = json!({"name": "more", "assumeRolePolicyDocument": TRUST});
            let more = life("iam", "roles", "Role", spec, json!({"permissionsBoundary": managed}));
            lives.push(more.with_fault("DeleteRole", Fault::Answer(409, "DeleteConflict"), 1));
        }
        "Stage" => {
            // The simulator shows tags as of the creation.
            lives[0].change = Some(json!({"description": "changed"}));
        }
        "APIGatewayDomain" => {
            let zone = create_zone(aws, "example.com").await;
            lives.extend([domain_with_leftovers(&zone), domain_with_a_leftover_certificate()]);
        }
        "StaticSite" => {
            let zone = create_zone(aws, "example.com").await;
            let spec = json!({"domain": "more.example.com", "pages": {"index.html": "text"}, "dnsConfig": {"hostedZoneID": zone}});
            let case = Case { place: bridge("staticsites", "more"), kind: "StaticSite", spec, change: None };
            lives.push(Life::of(case));
        }
        _ => {}
    }
    lives
}

async fn certificates(harness: &Harness) -> Vec<Life> {
    let pair = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pair"},
        "stringData": {"cert": "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n", "key": "secret"}});
    let secrets = "/api/v1/namespaces/default/secrets";
    harness.call("POST", secrets, Some(("application/json", &pair))).await.expect("a Secret");
    let key = |key: &str| json!({"name": "pair", "key": key});
    let tags = |value: &str| json!([{"key": value, "value": "a"}]);
    let preference = |preference: &str| json!({"certificateTransparencyLoggingPreference": preference});
    let requested =
        json!({"domainName": "more.example.com", "tags": tags("one"), "options": preference("ENABLED")});
    let changed = json!({"tags": tags("two"), "options": preference("DISABLED")});
    let certificate = |spec: Value, change: Value| life("acm", "certificates", "Certificate", spec, change);
    vec![
        certificate(requested.clone(), changed),
        certificate(json!({"certificate": key("cert"), "privateKey": key("key")}), Value::Null),
        certificate(requested, Value::Null).with_fault(
            "CertificateManager.RequestCertificate",
            Fault::CutAfterSend,
            1,
        ),
    ]
}

fn zones() -> Vec<Life> {
    let zone = |spec: Value, change: Value| life("route53", "hostedzones", "HostedZone", spec, change);
    let vpc = |id: &str| json!({"vpcID": id, "vpcRegion": "us-east-1"});
    let private = json!({"name": "private.example.", "hostedZoneConfig": {"privateZone": true},
        "vpcs": [vpc("vpc-11111111")]});
    let public = json!({"name": "more.example.", "tags": [{"key": "team", "value": "a"}]});
    let lost = zone(public, json!({"tags": [{"key": "team", "value": "b"}]}));
    vec![
        zone(private, json!({"vpcs": [vpc("vpc-22222222")]})),
        lost.with_fault("POST /2013-04-01/hostedzone ", Fault::CutAfterSend, 1).with_fault(
            "DELETE /2013-04-01/hostedzone/",
            Fault::Answer(400, "HostedZoneNotEmpty"),
            1,
        ),
    ]
}

/// Every part of a bucket, set and removed again.
async fn bucket(aws: &Simulator, account: &str) -> Life {
    for name in ["more-logs", "more-copies"] {
        let (code, said) = aws.send("s3", "PUT", &format!("/{name}"), &[], "").await;
        assert_eq!(code, 200, "{said}");
    }
    let versioned = "<VersioningConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Status>Enabled</Status></VersioningConfiguration>";
    aws.send("s3", "PUT", "/more-copies?versioning", &[], versioned).await;
    let policy = json!({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Resource": "arn:aws:s3:::more-bucket/*",
        "Principal": {"AWS": format!("arn:aws:iam::{account}:root")}, "Action": "s3:GetObject"}]});
    let destination = json!({"s3BucketDestination": {"bucket": "arn:aws:s3:::more-logs", "format": "CSV"}});
    let spec = json!({"name": "more-bucket", "policy": policy.to_string(), "objectLockEnabledForBucket": true,
        "abac": {"status": "Enabled"}, "accelerate": {"status": "Enabled"}, "acl": "private",
        "analytics": [{"id": "all", "storageClassAnalysis": {}}],
        "encryption": {"rules": [{"applyServerSideEncryptionByDefault": {"sseAlgorithm": "AES256"}}]},
        "intelligentTiering": [{"id": "all", "status": "Enabled", "tierings": [{"accessTier": "ARCHIVE_ACCESS", "days": 90}]}],
        "inventory": [{"id": "all", "destination": destination, "isEnabled": true, "includedObjectVersions": "Current",
            "schedule": {"frequency": "Daily"}}],
        "lifecycle": {"rules": [{"id": "old", "status": "Enabled", "filter": {"prefix": "tmp/"}, "expiration": {"days": 1}}]},
        "logging": {"loggingEnabled": {"targetBucket": "more-logs", "targetPrefix": "a/"}},
        "metrics": [{"id": "all"}], "notification": {"queueConfigurations": []},
        "objectLockConfiguration": {"rule": {"defaultRetention": {"days": 1, "mode": "GOVERNANCE"}}},
        "ownershipControls": {"rules": [{"objectOwnership": "ObjectWriter"}]},
        "publicAccessBlock": {"blockPublicACLs": false, "blockPublicPolicy": true},
        "replication": {"role": format!("arn:aws:iam::{account}:role/any"), "rules": [{"id": "all", "status": "Enabled",
            "priority": 1, "filter": {"prefix": ""}, "deleteMarkerReplication": {"status": "Disabled"},
            "destination": {"bucket": "arn:aws:s3:::more-copies"}}]},
        "requestPayment": {"payer": "Requester"}, "versioning": {"status": "Enabled"},
        "website": {"indexDocument": {"suffix": "index.html"}}});
    let mut change = json!({"acl": "public-read", "notification": {"topicConfigurations": null, "queueConfigurations": null}});
    for field in [
        "accelerate",
        "analytics",
        "encryption",
        "intelligentTiering",
        "inventory",
        "lifecycle",
        "logging",
        "metrics",
        "ownershipControls",
        "policy",
        "publicAccessBlock",
        "replication",
        "requestPayment",
        "website",
    ] {
        change[field] = Value::Null;
    }
    life("s3", "buckets", "Bucket", spec, change)
}

fn table(account: &str) -> Life {
    let policy = json!({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "dynamodb:GetItem",
        "Principal": {"AWS": format!("arn:aws:iam::{account}:root")},
        "Resource": format!("arn:aws:dynamodb:us-east-1:{account}:table/more")}]});
    let spec = json!({"tableName": "more", "billingMode": "PAY_PER_REQUEST", "resourcePolicy": policy.to_string(),
        "attributeDefinitions": [{"attributeName": "id", "attributeType": "S"}],
        "keySchema": [{"attributeName": "id", "keyType": "HASH"}], "contributorInsights": "ENABLE"});
    let change = json!({"resourcePolicy": null, "contributorInsights": null});
    // The simulator keeps policy and insights when their table goes. AWS does not.
    fn before<'a>(aws: &'a Simulator, _: &'a Harness) -> Preparation<'a> {
        Box::pin(async move {
            let arn = format!("arn:aws:dynamodb:us-east-1:{}:table/more", aws.key);
            let table = json!({"TableName": "more", "BillingMode": "PAY_PER_REQUEST",
                "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
                "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}]});
            for (operation, body) in [
                ("CreateTable", table),
                ("DeleteResourcePolicy", json!({"ResourceArn": arn})),
                (
                    "UpdateContributorInsights",
                    json!({"TableName": "more", "ContributorInsightsAction": "DISABLE"}),
                ),
                ("DeleteTable", json!({"TableName": "more"})),
            ] {
                aws.json("dynamodb", &format!("DynamoDB_20120810.{operation}"), body).await;
            }
        })
    }
    Life { before, ..life("dynamodb", "tables", "Table", spec, change) }
}

/// A domain name of an earlier life, with another certificate: it is taken over.
fn domain_with_leftovers(zone: &str) -> Life {
    fn before<'a>(aws: &'a Simulator, _: &'a Harness) -> Preparation<'a> {
        Box::pin(async move {
            let mut certificates = Vec::new();
            for domain in ["left.example.com", "*.left.example.com"] {
                let body = json!({"DomainName": domain, "ValidationMethod": "DNS"});
                let (_, answer) = aws.json("acm", "CertificateManager.RequestCertificate", body).await;
                certificates.push(answer["CertificateArn"].clone());
            }
            let body = json!({"domainName": "left.example.com",
                "tags": {"services.k8s.aws/bridge-owner": "default/more"}, "domainNameConfigurations": [
                {"certificateArn": certificates[1], "endpointType": "REGIONAL", "securityPolicy": "TLS_1_2"}]});
            aws.rest("apigateway", "POST", "/v2/domainnames", Some(body)).await;
        })
    }
    let spec = json!({"domain": "left.example.com", "certificateStrategy": "discover", "apiRef": {"name": "shop"},
        "dnsConfig": {"hostedZoneID": zone}});
    let place = bridge("apigatewaydomains", "more");
    let case = Case { place, kind: "APIGatewayDomain", spec, change: None };
    Life { case, change: None, faults: Vec::new(), before }
}

/// A certificate that an earlier life of the object requested.
fn domain_with_a_leftover_certificate() -> Life {
    fn before<'a>(aws: &'a Simulator, _: &'a Harness) -> Preparation<'a> {
        Box::pin(async move {
            let tags = json!([{"Key": "services.k8s.aws/bridge-owner", "Value": "default/kept"}]);
            let body = json!({"DomainName": "kept.example.com", "ValidationMethod": "DNS", "Tags": tags});
            aws.json("acm", "CertificateManager.RequestCertificate", body).await;
        })
    }
    let spec =
        json!({"domain": "kept.example.com", "certificateStrategy": "create", "apiRef": {"name": "shop"}});
    let place = bridge("apigatewaydomains", "kept");
    let case = Case { place, kind: "APIGatewayDomain", spec, change: None };
    Life { before, ..Life::of(case) }
}

//! A life of each kind: what it needs, what is created, what is changed, and where AWS shows the change.

use serde_json::{Value, json};

use crate::{
    harness::{At, Harness, at},
    kinds::{TRUST, ZIP},
    permissions::create_function,
    simulators::Simulator,
    stage::{bridge, create_zone},
};

/// A look at AWS: service, method, path and body, and a text of the answer that tells of a change.
pub(crate) struct Look {
    pub(crate) request: (&'static str, &'static str, String, String),
    pub(crate) shows: &'static str,
}

/// An object and its life.
pub(crate) struct Case {
    pub(crate) place: At,
    pub(crate) kind: &'static str,
    pub(crate) spec: Value,
    /// A merge patch of the spec, and where it shows.
    pub(crate) change: Option<(Value, Look)>,
}

/// Kinds with a life here, each with the kinds that must be reconciled with it.
pub(crate) const KINDS: &[&[&str]] = &[
    &["Function"],
    &["Alias"],
    &["API"],
    &["Stage"],
    &["Route"],
    &["Integration"],
    &["DomainName"],
    &["APIMapping"],
    &["Certificate"],
    &["HostedZone"],
    &["RecordSet"],
    &["Bucket"],
    &["Table"],
    &["Role"],
    &["Policy"],
    &["APIGatewayDomain", "API", "Stage", "Certificate", "DomainName", "APIMapping"],
    &["LambdaPermission"],
    &["StaticSite", "Bucket"],
];

/// Percent-encodes a parameter.
pub(crate) fn encode(text: &str) -> String {
    let byte = |byte: &u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => char::from(*byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.as_bytes().iter().map(byte).collect()
}

fn look(service: &'static str, method: &'static str, path: &str, body: &str, shows: &'static str) -> Look {
    Look { request: (service, method, path.to_owned(), body.to_owned()), shows }
}

fn get(service: &'static str, path: &str, shows: &'static str) -> Look {
    look(service, "GET", path, "", shows)
}

/// Creates an API behind the controllers' back, with two stages. Returns its id.
async fn create_api(aws: &Simulator) -> String {
    let body = json!({"name": "given", "protocolType": "HTTP"});
    let (_, api) = aws.rest("apigateway", "POST", "/v2/apis", Some(body)).await;
    let id = api["apiId"].as_str().expect("an id").to_owned();
    for stage in ["one", "two"] {
        let body = json!({"stageName": stage, "autoDeploy": true});
        aws.rest("apigateway", "POST", &format!("/v2/apis/{id}/stages"), Some(body)).await;
    }
    id
}

async fn request_certificate(aws: &Simulator) -> String {
    let body = json!({"DomainName": "*.example.com", "ValidationMethod": "DNS"});
    let (_, answer) = aws.json("acm", "CertificateManager.RequestCertificate", body).await;
    answer["CertificateArn"].as_str().expect("an ARN").to_owned()
}

/// Makes what a kind needs, and returns its case. `account` is the simulator's.
pub(crate) async fn prepare(kind: &str, aws: &Simulator, harness: &Harness, account: &str) -> Case {
    match kind {
        "Function" | "Alias" | "LambdaPermission" => of_lambda(kind, aws, account).await,
        "API" | "Stage" | "Route" | "Integration" | "DomainName" | "APIMapping" => {
            of_gateway(kind, aws).await
        }
        "Role" | "Policy" => of_iam(kind, account),
        "APIGatewayDomain" => api_gateway_domain(aws, harness).await,
        _ => others(kind, aws).await,
    }
}

fn case(service: &str, plural: &str, kind: &'static str, spec: Value, change: Option<(Value, Look)>) -> Case {
    Case { place: at(service, plural, "default", "life"), kind, spec, change }
}

async fn of_lambda(kind: &str, aws: &Simulator, account: &str) -> Case {
    let functions = "/2015-03-31/functions";
    let role = format!(
        "Action=CreateRole&RoleName=any&AssumeRolePolicyDocument={}&Version=2010-05-08",
        encode(TRUST)
    );
    aws.query("iam", &role).await;
    if kind == "Function" {
        let spec = json!({"name": "life", "code": {"zipFile": ZIP}, "runtime": "python3.12", "handler": "main.handler",
            "role": format!("arn:aws:iam::{account}:role/any"), "reservedConcurrentExecutions": 3, "tags": {"team": "a"},
            "functionEventInvokeConfig": {"maximumRetryAttempts": 1}});
        let change = json!({"timeout": 21, "reservedConcurrentExecutions": null, "functionEventInvokeConfig": null,
            "tags": {"team": null, "owner": "b"}});
        let shown = get("lambda", &format!("{functions}/life"), "\"Timeout\": 21");
        return case("lambda", "functions", "Function", spec, Some((change, shown)));
    }
    create_function(aws, "given").await;
    if kind == "Alias" {
        let permission = json!([{"statementID": "invoke", "action": "lambda:InvokeFunction",
            "principal": "apigateway.amazonaws.com"}]);
        let spec = json!({"name": "life", "functionName": "given", "functionVersion": "$LATEST", "permissions": permission,
            "functionEventInvokeConfig": {"maximumRetryAttempts": 1}});
        let change =
            json!({"description": "changed", "permissions": null, "functionEventInvokeConfig": null});
        let shown = get("lambda", &format!("{functions}/given/aliases"), "changed");
        return case("lambda", "aliases", "Alias", spec, Some((change, shown)));
    }
    let statement =
        |id: &str| json!([{"statementId": id, "sourceArn": "arn:aws:execute-api:us-east-1:1:a/*"}]);
    let spec = json!({"functionRef": {"functionName": "given"}, "permissions": statement("before")});
    let shown = get("lambda", &format!("{functions}/given/policy"), "changed");
    let change = (json!({"permissions": statement("changed")}), shown);
    Case { place: bridge("lambdapermissions", "life"), kind: "LambdaPermission", spec, change: Some(change) }
}

async fn of_gateway(kind: &str, aws: &Simulator) -> Case {
    let service = "apigatewayv2";
    if kind == "API" {
        let spec = json!({"name": "life", "protocolType": "HTTP", "tags": {"team": "a"}});
        // Its tags stay: the simulator shows them as of the creation.
        let change = json!({"description": "changed"});
        return case(service, "apis", "API", spec, Some((change, get("apigateway", "/v2/apis", "changed"))));
    }
    if kind == "DomainName" {
        let configuration = |policy: &str, certificate: &str| json!([{"certificateARN": certificate, "endpointType": "REGIONAL", "securityPolicy": policy}]);
        let certificate = request_certificate(aws).await;
        let spec = json!({"domainName": "life.example.com", "tags": {"team": "a"},
            "domainNameConfigurations": configuration("TLS_1_2", &certificate)});
        let other = request_certificate(aws).await;
        let change = json!({"tags": {"owner": "changed"}, "domainNameConfigurations": configuration("TLS_1_2", &other)});
        let shown = get("apigateway", "/v2/domainnames/life.example.com", "changed");
        return case(service, "domainnames", "DomainName", spec, Some((change, shown)));
    }
    let api = create_api(aws).await;
    let path = |part: &str| format!("/v2/apis/{api}/{part}");
    match kind {
        "Stage" => {
            let spec = json!({"apiID": api, "stageName": "life", "autoDeploy": true, "tags": {"team": "a"}});
            let change = json!({"description": "changed", "tags": {"owner": "b"}});
            let shown = get("apigateway", &path("stages/life"), "changed");
            case(service, "stages", "Stage", spec, Some((change, shown)))
        }
        "Route" => {
            let spec = json!({"apiID": api, "routeKey": "GET /life"});
            let shown = get("apigateway", &path("routes"), "changed");
            case(service, "routes", "Route", spec, Some((json!({"operationName": "changed"}), shown)))
        }
        "Integration" => {
            let spec = json!({"apiID": api, "integrationType": "HTTP_PROXY", "integrationMethod": "GET",
                "integrationURI": "https://example.org", "payloadFormatVersion": "1.0"});
            let shown = get("apigateway", &path("integrations"), "changed");
            case(
                service,
                "integrations",
                "Integration",
                spec,
                Some((json!({"description": "changed"}), shown)),
            )
        }
        _ => {
            let certificate = request_certificate(aws).await;
            let body = json!({"domainName": "given.example.com", "domainNameConfigurations": [
                {"certificateArn": certificate, "endpointType": "REGIONAL", "securityPolicy": "TLS_1_2"}]});
            aws.rest("apigateway", "POST", "/v2/domainnames", Some(body)).await;
            let spec = json!({"apiID": api, "domainName": "given.example.com", "stage": "one"});
            let shown = get("apigateway", "/v2/domainnames/given.example.com/apimappings", "\"two\"");
            case(service, "apimappings", "APIMapping", spec, Some((json!({"stage": "two"}), shown)))
        }
    }
}

fn of_iam(kind: &str, account: &str) -> Case {
    let document = |action: &str| {
        json!({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": action, "Resource": "*"}]}).to_string()
    };
    let query = |query: &str, shows| look("iam", "POST", "/", &format!("{query}&Version=2010-05-08"), shows);
    if kind == "Policy" {
        let spec = json!({"name": "life", "policyDocument": document("s3:GetObject"), "tags": [{"key": "team", "value": "a"}]});
        let change =
            json!({"policyDocument": document("s3:PutObject"), "tags": [{"key": "owner", "value": "b"}]});
        let arn = format!("Action=GetPolicy&PolicyArn=arn:aws:iam::{account}:policy/life");
        return case("iam", "policies", "Policy", spec, Some((change, query(&arn, "<Key>owner</Key>"))));
    }
    let managed = "arn:aws:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole";
    let spec = json!({"name": "life", "assumeRolePolicyDocument": TRUST, "policies": [managed],
        "inlinePolicies": {"logs": document("logs:*")}, "permissionsBoundary": managed, "tags": [{"key": "team", "value": "a"}]});
    let trust = TRUST.replace("lambda", "edgelambda");
    let change = json!({"description": "changed", "policies": null, "inlinePolicies": null, "permissionsBoundary": null,
        "assumeRolePolicyDocument": trust, "tags": [{"key": "owner", "value": "b"}]});
    case("iam", "roles", "Role", spec, Some((change, query("Action=GetRole&RoleName=life", "changed"))))
}

async fn api_gateway_domain(aws: &Simulator, harness: &Harness) -> Case {
    let zone = create_zone(aws, "example.com").await;
    let api = at("apigatewayv2", "apis", "default", "shop");
    harness.apply(&api, "API", json!({}), json!({"name": "shop", "protocolType": "HTTP"})).await;
    let stage = at("apigatewayv2", "stages", "default", "shop");
    let spec = json!({"apiRef": {"from": {"name": "shop"}}, "stageName": "$default", "autoDeploy": true});
    harness.apply(&stage, "Stage", json!({}), spec).await;
    harness.synced(&stage).await;
    let spec =
        json!({"domain": "life.example.com", "certificateStrategy": "create", "apiRef": {"name": "shop"}});
    let shown = get("route53", &format!("/2013-04-01/hostedzone/{zone}/rrset"), "<TTL>77</TTL>");
    let change = (json!({"dnsConfig": {"ttl": 77}}), shown);
    Case { place: bridge("apigatewaydomains", "life"), kind: "APIGatewayDomain", spec, change: Some(change) }
}

async fn others(kind: &str, aws: &Simulator) -> Case {
    match kind {
        "Certificate" => {
            let spec = json!({"domainName": "life.example.com", "subjectAlternativeNames": ["www.life.example.com"],
                "tags": [{"key": "team", "value": "a"}]});
            // Its tags can be read by its ARN alone, which differs from life to life.
            case("acm", "certificates", "Certificate", spec, None)
        }
        "HostedZone" => {
            let spec = json!({"name": "life.example.", "hostedZoneConfig": {"comment": "first"},
                "tags": [{"key": "team", "value": "a"}]});
            let shown = get("route53", "/2013-04-01/hostedzone", "changed");
            let change = json!({"hostedZoneConfig": {"comment": "changed"}});
            case("route53", "hostedzones", "HostedZone", spec, Some((change, shown)))
        }
        "RecordSet" => {
            let zone = create_zone(aws, "example.com").await;
            let record = |value: &str| json!([{"value": value}]);
            let spec = json!({"hostedZoneID": zone, "name": "life", "recordType": "A", "ttl": 60,
                "resourceRecords": record("192.0.2.1")});
            let shown = get("route53", &format!("/2013-04-01/hostedzone/{zone}/rrset"), "192.0.2.77");
            let change = json!({"resourceRecords": record("192.0.2.77")});
            case("route53", "recordsets", "RecordSet", spec, Some((change, shown)))
        }
        "Bucket" => {
            let cors = json!({"corsRules": [{"allowedMethods": ["GET"], "allowedOrigins": ["*"]}]});
            let spec = json!({"name": "life-bucket", "versioning": {"status": "Enabled"}, "cors": cors,
                "tagging": {"tagSet": [{"key": "team", "value": "a"}]}});
            let change = json!({"cors": null, "versioning": {"status": "Suspended"},
                "tagging": {"tagSet": [{"key": "team", "value": "changed"}]}});
            let shown = get("s3", "/life-bucket?tagging", "changed");
            case("s3", "buckets", "Bucket", spec, Some((change, shown)))
        }
        "Table" => {
            let spec = json!({"tableName": "life", "billingMode": "PAY_PER_REQUEST",
                "attributeDefinitions": [{"attributeName": "id", "attributeType": "S"}],
                "keySchema": [{"attributeName": "id", "keyType": "HASH"}],
                "timeToLive": {"attributeName": "expires", "enabled": true}, "tags": [{"key": "team", "value": "a"}]});
            let change = json!({"streamSpecification": {"streamEnabled": true, "streamViewType": "NEW_IMAGE"},
                "continuousBackups": {"pointInTimeRecoveryEnabled": true}, "tags": [{"key": "owner", "value": "b"}]});
            let shown = look(
                "dynamodb",
                "DynamoDB_20120810.DescribeTable",
                "",
                "{\"TableName\":\"life\"}",
                "NEW_IMAGE",
            );
            case("dynamodb", "tables", "Table", spec, Some((change, shown)))
        }
        _ => {
            assert_eq!(kind, "StaticSite", "a kind without a case");
            create_zone(aws, "example.com").await;
            let spec =
                json!({"domain": "life.example.com", "pages": {"index.html": "first", "old.html": "old"}});
            let shown = get("s3", "/life.example.com/index.html", "changed");
            let change = json!({"pages": {"index.html": "changed", "old.html": null}});
            Case {
                place: bridge("staticsites", "life"),
                kind: "StaticSite",
                spec,
                change: Some((change, shown)),
            }
        }
    }
}

impl Look {
    /// True if AWS shows the change.
    pub(crate) async fn is_shown(&self, aws: &Simulator) -> bool {
        let (service, method, path, body) = &self.request;
        // Services with one path name the operation in a header.
        let answer = match method.split_once('.') {
            Some(_) => {
                let body = serde_json::from_str(body).expect("JSON");
                aws.json(service, method, body).await.1.to_string()
            }
            None if *service == "iam" => aws.query(service, body).await.1,
            None => aws.send(service, method, path, &[], body).await.1,
        };
        answer.contains(self.shows)
    }
}

/// True if an object of ACK's or the Bridge's is as wanted.
pub(crate) fn is_ready(object: &Value) -> bool {
    orlop_aws::is_synced(object) || object["status"]["ready"] == true
}

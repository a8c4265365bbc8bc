//! Everything that an account of ministack has, for counting what is left or doubled.

use serde_json::Value;

use crate::simulators::Simulator;

fn items<'a>(answer: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    answer[list].as_array().into_iter().flatten()
}

fn text<'a>(item: &'a Value, field: &str) -> &'a str {
    item[field].as_str().unwrap_or_default()
}

/// Returns the texts of the elements of a name.
pub(crate) fn elements<'a>(document: &'a str, name: &str) -> Vec<&'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    document.split(&open).skip(1).filter_map(|rest| rest.split(&close).next()).collect()
}

/// Returns a line for each resource, without identifiers that AWS assigns.
pub(crate) async fn inventory(aws: &Simulator) -> Vec<String> {
    let mut lines = Vec::new();
    functions(aws, &mut lines).await;
    apis(aws, &mut lines).await;
    zones(aws, &mut lines).await;
    buckets(aws, &mut lines).await;
    let (_, answer) =
        aws.json("acm", "CertificateManager.ListCertificates", Value::Object(Default::default())).await;
    for certificate in items(&answer, "CertificateSummaryList") {
        lines.push(format!("certificate {}", text(certificate, "DomainName")));
    }
    let (_, answer) =
        aws.json("dynamodb", "DynamoDB_20120810.ListTables", Value::Object(Default::default())).await;
    lines.extend(items(&answer, "TableNames").map(|name| format!("table {name}")));
    let (_, roles) = aws.query("iam", "Action=ListRoles&Version=2010-05-08").await;
    lines.extend(elements(&roles, "RoleName").iter().map(|name| format!("role {name}")));
    let (_, policies) = aws.query("iam", "Action=ListPolicies&Scope=Local&Version=2010-05-08").await;
    lines.extend(elements(&policies, "PolicyName").iter().map(|name| format!("policy {name}")));
    lines.sort();
    lines
}

async fn functions(aws: &Simulator, lines: &mut Vec<String>) {
    let all = "/2015-03-31/functions";
    let (_, answer) = aws.rest("lambda", "GET", all, None).await;
    for function in items(&answer, "Functions") {
        let name = text(function, "FunctionName");
        lines.push(format!("function {name}"));
        let (_, answer) = aws.rest("lambda", "GET", &format!("{all}/{name}/aliases"), None).await;
        let mut policies = vec![format!("{all}/{name}/policy")];
        for alias in items(&answer, "Aliases") {
            let alias = text(alias, "Name");
            lines.push(format!("alias {name}:{alias}"));
            policies.push(format!("{all}/{name}/policy?Qualifier={alias}"));
        }
        for path in policies {
            let (_, answer) = aws.rest("lambda", "GET", &path, None).await;
            let policy: Value = serde_json::from_str(text(&answer, "Policy")).unwrap_or_default();
            lines.extend(
                items(&policy, "Statement").map(|one| format!("statement {path} {}", text(one, "Sid"))),
            );
        }
    }
}

async fn apis(aws: &Simulator, lines: &mut Vec<String>) {
    let (_, answer) = aws.rest("apigateway", "GET", "/v2/apis", None).await;
    for api in items(&answer, "items") {
        let (id, name) = (text(api, "apiId"), text(api, "name"));
        lines.push(format!("API {name}"));
        for (part, key) in
            [("stages", "stageName"), ("routes", "routeKey"), ("integrations", "integrationType")]
        {
            let (_, answer) = aws.rest("apigateway", "GET", &format!("/v2/apis/{id}/{part}"), None).await;
            lines
                .extend(items(&answer, "items").map(|item| format!("{part} of {name}: {}", text(item, key))));
        }
    }
    let (_, answer) = aws.rest("apigateway", "GET", "/v2/domainnames", None).await;
    for domain in items(&answer, "items") {
        let name = text(domain, "domainName");
        lines.push(format!("domain name {name}"));
        let (_, answer) =
            aws.rest("apigateway", "GET", &format!("/v2/domainnames/{name}/apimappings"), None).await;
        lines.extend(
            items(&answer, "items").map(|item| format!("mapping of {name} to {}", text(item, "stage"))),
        );
    }
}

async fn zones(aws: &Simulator, lines: &mut Vec<String>) {
    let (_, answer) = aws.send("route53", "GET", "/2013-04-01/hostedzone", &[], "").await;
    for zone in elements(&answer, "HostedZone") {
        let name = elements(zone, "Name").first().copied().unwrap_or_default();
        lines.push(format!("zone {name}"));
        let id = elements(zone, "Id").first().copied().unwrap_or_default();
        let (_, records) = aws.send("route53", "GET", &format!("/2013-04-01{id}/rrset"), &[], "").await;
        for record in elements(&records, "ResourceRecordSet") {
            let part = |name: &str| elements(record, name).first().copied().unwrap_or_default();
            lines.push(format!("record {} {} of {name}", part("Name"), part("Type")));
        }
    }
}

async fn buckets(aws: &Simulator, lines: &mut Vec<String>) {
    let (_, answer) = aws.send("s3", "GET", "/", &[], "").await;
    for bucket in elements(&answer, "Bucket") {
        let name = elements(bucket, "Name").first().copied().unwrap_or_default();
        lines.push(format!("bucket {name}"));
        let (_, objects) = aws.send("s3", "GET", &format!("/{name}"), &[], "").await;
        lines.extend(elements(&objects, "Key").iter().map(|key| format!("object {name}/{key}")));
    }
}

//! The AWS services that are called: names, protocols, limits of calls.

use std::time::Duration;

/// Protocol of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// JSON bodies, one path for each operation.
    RestJson,
    /// JSON bodies, one path, the operation in a header with this prefix.
    Json { target: &'static str, version: &'static str },
    /// XML bodies, one path for each operation.
    RestXml,
    /// Form parameters, XML answers.
    Query { version: &'static str },
}

/// A service.
#[derive(Debug)]
pub(crate) struct Service {
    /// Name in ACK's groups and in IAM actions.
    pub(crate) name: &'static str,
    /// First label of its host.
    pub(crate) host: &'static str,
    /// Name that requests are signed for.
    pub(crate) signing: &'static str,
    /// Name of the variable with its endpoint, after `AWS_ENDPOINT_URL_`.
    pub(crate) variable: &'static str,
    /// One endpoint for all regions of a partition.
    pub(crate) global: bool,
    pub(crate) protocol: Protocol,
    /// As the SDK writes it in errors.
    pub(crate) id: &'static str,
}

pub(crate) static LAMBDA: Service = Service {
    name: "lambda",
    host: "lambda",
    signing: "lambda",
    variable: "LAMBDA",
    global: false,
    protocol: Protocol::RestJson,
    id: "Lambda",
};

pub(crate) static APIGATEWAYV2: Service = Service {
    name: "apigatewayv2",
    host: "apigateway",
    signing: "apigateway",
    variable: "APIGATEWAYV2",
    global: false,
    protocol: Protocol::RestJson,
    id: "ApiGatewayV2",
};

pub(crate) static ACM: Service = Service {
    name: "acm",
    host: "acm",
    signing: "acm",
    variable: "ACM",
    global: false,
    protocol: Protocol::Json { target: "CertificateManager", version: "1.1" },
    id: "ACM",
};

pub(crate) static DYNAMODB: Service = Service {
    name: "dynamodb",
    host: "dynamodb",
    signing: "dynamodb",
    variable: "DYNAMODB",
    global: false,
    protocol: Protocol::Json { target: "DynamoDB_20120810", version: "1.0" },
    id: "DynamoDB",
};

pub(crate) static ROUTE53: Service = Service {
    name: "route53",
    host: "route53",
    signing: "route53",
    variable: "ROUTE_53",
    global: true,
    protocol: Protocol::RestXml,
    id: "Route 53",
};

pub(crate) static S3: Service = Service {
    name: "s3",
    host: "s3",
    signing: "s3",
    variable: "S3",
    global: false,
    protocol: Protocol::RestXml,
    id: "S3",
};

pub(crate) static IAM: Service = Service {
    name: "iam",
    host: "iam",
    signing: "iam",
    variable: "IAM",
    global: true,
    protocol: Protocol::Query { version: "2010-05-08" },
    id: "IAM",
};

pub(crate) static STS: Service = Service {
    name: "sts",
    host: "sts",
    signing: "sts",
    variable: "STS",
    global: false,
    protocol: Protocol::Query { version: "2011-06-15" },
    id: "STS",
};

/// A limit of calls: the class of operations that share it, the time between two, and how many may come at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limit {
    pub(crate) class: &'static str,
    pub(crate) interval: Duration,
    /// Calls that AWS documents for a second.
    per_second: f64,
    /// The burst that AWS documents, if it does.
    burst: Option<u32>,
}

/// Share of AWS' documented limits that is used: other clients of the account need some too.
const SHARE: f64 = 0.7;

impl Limit {
    /// Returns how many calls may come at once. Where AWS documents no burst it is so many that, with those that the rate
    /// adds within a second, no second has more than AWS documents.
    pub(crate) fn burst(&self, scale: f64) -> u32 {
        let burst = match self.burst {
            Some(burst) => (f64::from(burst) - self.per_second).max(1.0) * scale * SHARE,
            None => {
                let limit = self.per_second * scale;
                limit.floor() - (limit * SHARE).floor()
            }
        };
        (burst as u32).max(1)
    }
}

impl Service {
    /// Returns the limit of an operation. Where AWS publishes none, a modest one holds.
    pub(crate) fn limit(&self, operation: &'static str) -> Limit {
        let (class, per_second, burst) = match (self.name, operation) {
            ("lambda", "GetFunction") => ("get", 100.0, None),
            ("lambda", "GetPolicy") => ("policy", 15.0, None),
            ("lambda", _) => ("control", 15.0, None),
            ("apigatewayv2", "CreateDomainName") => ("domain", 1.0 / 30.0, None),
            ("apigatewayv2", _) => ("control", 10.0, Some(40)),
            ("acm", "ListCertificates" | "ImportCertificate") => (operation, 1.0, None),
            ("acm", "DescribeCertificate" | "DeleteCertificate" | "ListTagsForCertificate") => {
                (operation, 10.0, None)
            }
            ("acm", _) => (operation, 5.0, None),
            ("route53", _) => ("all", 5.0, None),
            ("dynamodb", _) => ("control", 2500.0, None),
            ("iam", _) => ("control", 15.0, Some(30)),
            ("s3", _) => ("control", 50.0, Some(100)),
            _ => ("all", 20.0, Some(40)),
        };
        Limit { class, interval: Duration::from_secs_f64(1.0 / (per_second * SHARE)), per_second, burst }
    }
}

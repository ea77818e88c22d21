"""A Java program, compiled: a runtime need not bring a compiler.

public class Sums {
    public static void main(String[] words) throws Exception {
        final double[] sums = new double[4];
        Thread[] threads = new Thread[4];
        for (int i = 0; i < 4; i++) {
            final int mine = i;
            threads[i] = new Thread() {
                public void run() {
                    for (int j = 1; j < 200000; j++) sums[mine] += 1.0 / (j + mine);
                }
            };
            threads[i].start();
        }
        for (int i = 0; i < 4; i++) threads[i].join();
        for (int i = 0; i < 4; i++) System.out.println(sums[i]);
        System.err.println("to stderr");
        System.exit(5);
    }
}

Made by `javac -g:none --release 8 Sums.java`; in base64.
"""

from __future__ import annotations

SUMS = (
    "yv66vgAAADQAOgoAAgADBwAEDAAFAAYBABBqYXZhL2xhbmcvT2JqZWN0AQAGPGluaXQ+AQADKClWBwAIAQAQamF2"
    "YS9sYW5nL1RocmVhZAcACgEABlN1bXMkMQoACQAMDAAFAA0BAAYoW0RJKVYKAAcADwwAEAAGAQAFc3RhcnQKAAcA"
    "EgwAEwAGAQAEam9pbgkAFQAWBwAXDAAYABkBABBqYXZhL2xhbmcvU3lzdGVtAQADb3V0AQAVTGphdmEvaW8vUHJp"
    "bnRTdHJlYW07CgAbABwHAB0MAB4AHwEAE2phdmEvaW8vUHJpbnRTdHJlYW0BAAdwcmludGxuAQAEKEQpVgkAFQAh"
    "DAAiABkBAANlcnIIACQBAAl0byBzdGRlcnIKABsAJgwAHgAnAQAVKExqYXZhL2xhbmcvU3RyaW5nOylWCgAVACkM"
    "ACoAKwEABGV4aXQBAAQoSSlWBwAtAQAEU3VtcwEABENvZGUBAARtYWluAQAWKFtMamF2YS9sYW5nL1N0cmluZzsp"
    "VgEADVN0YWNrTWFwVGFibGUHADMBAAJbRAcANQEAE1tMamF2YS9sYW5nL1RocmVhZDsBAApFeGNlcHRpb25zBwA4"
    "AQATamF2YS9sYW5nL0V4Y2VwdGlvbgEADElubmVyQ2xhc3NlcwAhACwAAgAAAAAAAgABAAUABgABAC4AAAARAAEA"
    "AQAAAAUqtwABsQAAAAAACQAvADAAAgAuAAAAkQAGAAUAAABiB7wHTAe9AAdNAz4dB6IAHx02BCwduwAJWSsVBLcA"
    "C1MsHTK2AA6EAwGn/+IDPh0HogAPLB0ytgARhAMBp//yAz4dB6IAErIAFCsdMbYAGoQDAaf/77IAIBIjtgAlCLgA"
    "KLEAAAABADEAAAAdAAb+AAsHADIHADQB+gAg/AABAfoAEPwAAQH6ABMANgAAAAQAAQA3AAEAOQAAAAoAAQAJAAAA"
    "AAAA"
)

SUMS_1 = (
    "yv66vgAAADQAHQkAAgADBwAEDAAFAAYBAAZTdW1zJDEBAAh2YWwkc3VtcwEAAltECQACAAgMAAkACgEACHZhbCRt"
    "aW5lAQABSQoADAANBwAODAAPABABABBqYXZhL2xhbmcvVGhyZWFkAQAGPGluaXQ+AQADKClWAwADDUABAAYoW0RJ"
    "KVYBAARDb2RlAQADcnVuAQANU3RhY2tNYXBUYWJsZQEAD0VuY2xvc2luZ01ldGhvZAcAGAEABFN1bXMMABoAGwEA"
    "BG1haW4BABYoW0xqYXZhL2xhbmcvU3RyaW5nOylWAQAMSW5uZXJDbGFzc2VzACAAAgAMAAAAAhAQAAUABgAAEBAA"
    "CQAKAAAAAgAAAA8AEgABABMAAAAbAAIAAwAAAA8qK7UAASoctQAHKrcAC7EAAAAAAAEAFAAQAAEAEwAAAD8ACAAC"
    "AAAAJAQ8GxIRogAeKrQAASq0AAdcMQ8bKrQAB2CHb2NShAEBp//isQAAAAEAFQAAAAkAAvwAAgH6ACAAAgAWAAAA"
    "BAAXABkAHAAAAAoAAQACAAAAAAAA"
)
